// What the tests of kernels share: random tensors, comparison, and a scope with its own number of threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/tensor.h"

namespace gau::test {

/// Uniform in [-scale, scale), a function of the seed alone.
template <class T>
Tensor random_tensor(const Shape& shape, std::uint64_t seed, double scale = 1) {
  const RandomKey key{seed, 0, Site::kSynthetic, 0};
  Tensor tensor = Tensor::empty(shape, DTypeOf<T>::value);
  std::uint32_t index = 0;
  for (T& value : tensor.span<T>()) value = static_cast<T>((2 * key.uniform(index++, 0, 0) - 1) * scale);
  return tensor;
}

/// Uniform integers in [low, high).
inline Tensor random_indices(const Shape& shape, std::uint64_t seed, std::int32_t low, std::int32_t high) {
  const RandomKey key{seed, 0, Site::kSynthetic, 1};
  Tensor tensor = Tensor::empty(shape, DType::kI32);
  std::uint32_t index = 0;
  for (std::int32_t& value : tensor.span<std::int32_t>()) {
    value = low + static_cast<std::int32_t>(key.below(static_cast<std::uint64_t>(high - low), index++, 0, 0));
  }
  return tensor;
}

inline Tensor indices(const std::vector<std::int32_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 3e-6 : 1e-13;

/// |actual - expected| ≤ tolerance · max(1, |expected|), element by element; NaN fails.
inline void expect_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = actual.at(static_cast<std::int64_t>(i));
    ASSERT_LE(std::abs(value - expected[i]), tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i << ": " << value << " instead of " << expected[i];
  }
}

/// Sets the number of threads and restores it.
class Threads {
 public:
  explicit Threads(int count) : before_(threads()) { set_threads(count); }
  ~Threads() { set_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// `run` returns the same bits with 1, 2 and 4 threads.
inline void expect_thread_invariant(const char* name, const std::function<std::vector<Tensor>()>& run) {
  std::vector<Tensor> serial;
  {
    const Threads one(1);
    serial = run();
  }
  for (const int count : {2, 4}) {
    const Threads several(count);
    const std::vector<Tensor> parallel = run();
    ASSERT_EQ(parallel.size(), serial.size());
    for (std::size_t i = 0; i < serial.size(); ++i) {
      EXPECT_TRUE(same_bits(serial[i], parallel[i])) << name << ", output " << i << ", " << count << " threads";
    }
  }
}

}  // namespace gau::test
