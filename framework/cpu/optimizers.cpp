// One pass over flat segments for each optimizer step.
//
//   g = scale · gradient,  m = β₁ m + (1 - β₁) g,  v = β₂ v + (1 - β₂) g²
//   AdamW: w -= lr (m / (1 - β₁^t) / (sqrt(v / (1 - β₂^t)) + ε) + decay w)    (Loshchilov and Hutter, 2019)
//   LAMB:  update = m / (sqrt(v) + ε) + decay w, no bias correction           (You et al., 2020; as GAU-α was trained)
#include <cmath>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::kBlockElements;

// A step's constants in the element type. The complements are formed in double: 1 - 0.999 in float is off by 1e-5 of itself.
template <class T>
struct Constants {
  T scale, beta1, beta2, rest1, rest2, epsilon, decay;

  explicit Constants(const AdamStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest1(static_cast<T>(1 - step.beta1)),
        rest2(static_cast<T>(1 - step.beta2)),
        epsilon(static_cast<T>(step.epsilon)),
        decay(static_cast<T>(step.weight_decay)) {}
};

}  // namespace

void CpuBackend::adamw(const AdamStep& step, const Tensor& gradient, Tensor value, Tensor first, Tensor second) {
  dispatch(value.dtype(), "adamw", [&](auto zero) {
    using T = decltype(zero);
    const Constants<T> k(step);
    const auto t = static_cast<double>(step.step);
    const auto correct1 = static_cast<T>(1 / (1 - std::pow(step.beta1, t)));
    const auto correct2 = static_cast<T>(1 / (1 - std::pow(step.beta2, t)));
    const auto rate = static_cast<T>(step.learning_rate);
    const T* const g = gradient.data<T>();
    T* const w = value.data<T>();
    T* const m = first.data<T>();
    T* const v = second.data<T>();
    parallel_for(value.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T scaled = k.scale * g[i];
        m[i] = k.beta1 * m[i] + k.rest1 * scaled;
        v[i] = k.beta2 * v[i] + k.rest2 * scaled * scaled;
        w[i] -= rate * (m[i] * correct1 / (std::sqrt(v[i] * correct2) + k.epsilon) + k.decay * w[i]);
      }
    });
  });
}

void CpuBackend::lamb_update(const AdamStep& step, const Tensor& gradient, const Tensor& value, Tensor first, Tensor second,
                             Tensor update) {
  dispatch(value.dtype(), "lamb_update", [&](auto zero) {
    using T = decltype(zero);
    const Constants<T> k(step);
    const T* const g = gradient.data<T>();
    const T* const w = value.data<T>();
    T* const m = first.data<T>();
    T* const v = second.data<T>();
    T* const u = update.data<T>();
    parallel_for(value.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T scaled = k.scale * g[i];
        m[i] = k.beta1 * m[i] + k.rest1 * scaled;
        v[i] = k.beta2 * v[i] + k.rest2 * scaled * scaled;
        u[i] = m[i] / (std::sqrt(v[i]) + k.epsilon) + k.decay * w[i];
      }
    });
  });
}

void CpuBackend::apply_update(double rate, const Tensor& update, Tensor value) {
  dispatch(value.dtype(), "apply_update", [&](auto zero) {
    using T = decltype(zero);
    const auto by = static_cast<T>(rate);
    const T* const u = update.data<T>();
    T* const w = value.data<T>();
    parallel_for(value.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) w[i] -= by * u[i];
    });
  });
}

}  // namespace gau
