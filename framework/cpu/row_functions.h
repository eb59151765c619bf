// What several kernels do to one row: normalise it, turn it by its rotary table.
#pragma once

#include <cmath>
#include <cstdint>

#include "framework/attention_plan.h"
#include "framework/cpu/reduce.h"

namespace gau::cpu {

constexpr double kNormEpsilon = 1e-9;

/// out = x / (‖x‖ + ε), which may be x; returns 1 / (‖x‖ + ε), 0 for a zero row.
template <class T>
T normalize_row(const T* x, std::int64_t columns, T* out) {
  const double norm = std::sqrt(dot_product(x, x, columns));
  const T inverse = norm > 0 ? static_cast<T>(1 / (norm + kNormEpsilon)) : T(0);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) out[c] = x[c] * inverse;
  return inverse;
}

/// dx, which may be the gradient.
template <class T>
void normalize_row_backward(const T* x, T inverse, const T* gradient, std::int64_t columns, T* dx) {
  const double norm = std::sqrt(dot_product(x, x, columns));
  // inverse is 0 for a zero row, whose gradient is defined as 0.
  const double along = norm > 0 ? dot_product(x, gradient, columns) / norm * static_cast<double>(inverse) : 0;
  const auto radial = static_cast<T>(along);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) dx[c] = (gradient[c] - x[c] * radial) * inverse;
}

/// Where the rotary table keeps the row of (sample, position).
struct TableRows {
  TableRows() = default;
  explicit TableRows(const RotaryTable& table)
      : per_sample(table.cos.shape().rank() == 3), positions(table.cos.dim(per_sample ? 1 : 0)) {}

  bool per_sample = false;
  std::int64_t positions = 0;

  std::int64_t at(std::int64_t sample, std::int64_t position) const {
    if (per_sample) return sample * positions + position;
    return positions == 1 ? 0 : position;
  }
};

/// Pairs (a, b) become (a cos - b sin, a sin + b cos). `out` may be x. Without the pragma the compiler asks at run time whether
/// the operands lie too near each other for vectors, and its scalar loop contracts the products otherwise: bits would then
/// depend on where memory was found.
template <class T>
void rotate_row(const T* x, const T* cos, const T* sin, T sign, std::int64_t pairs, T* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const T a = x[2 * i], b = x[2 * i + 1];
    const T c = cos[i], s = sign * sin[i];
    out[2 * i] = a * c - b * s;
    out[2 * i + 1] = a * s + b * c;
  }
}

}  // namespace gau::cpu
