// Sums inside one block, in double, over sixteen running sums: the order is fixed by the code, and vector units are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gau::cpu {

constexpr std::size_t kSums = 16;

/// The running sums added pairwise.
template <class T>
T add_pairwise(std::array<T, kSums>& sums) {
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

/// Σ_i value(i) for i in [0, n), as double. The values of a group are made in their own type first: conversions and the work
/// inside `value` are then vectors of one width each.
template <class Value>
double sum_values(std::int64_t n, const Value& value) {
  using T = decltype(value(std::int64_t{0}));
  std::array<double, kSums> sums{};
  constexpr auto lanes = static_cast<std::int64_t>(kSums);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    T group[kSums];
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane) group[lane] = value(i + lane);
#pragma omp simd
    for (std::size_t lane = 0; lane < kSums; ++lane) sums[lane] += static_cast<double>(group[lane]);
  }
  for (; i < n; ++i) sums[static_cast<std::size_t>(i % lanes)] += static_cast<double>(value(i));
  return add_pairwise(sums);
}

/// Σ_i a[i] · b[i].
template <class T>
double dot_product(const T* a, const T* b, std::int64_t n) {
  return sum_values(n, [=](std::int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

}  // namespace gau::cpu
