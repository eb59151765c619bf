// Norms of rows and dropout, each in one pass over memory. Sums of squares run in double: rows of any magnitude have a norm.
//
//   normalize:  x̂ = x / (‖x‖ + ε),  dx = (g - x (x·g) / (‖x‖ (‖x‖ + ε))) / (‖x‖ + ε)
//   rms:        o = y r, r = (mean y² + ε)^-½,  dy = r (g - o mean(o g))
#include <algorithm>
#include <cmath>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/cpu/dropout_row.h"
#include "framework/cpu/row_functions.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::dot_product;
using cpu::normalize_row;
using cpu::normalize_row_backward;
using cpu::rows_per_block;

// body(r) for every row, in blocks.
template <class Body>
void for_rows(const Tensor& x, const Body& body) {
  parallel_for(x.rows(), rows_per_block(x.columns()), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

// y in place of out, then out = y r; returns r.
template <class T>
T rms_norm_row(const T* residual, std::int64_t columns, double eps, T* out) {
  if (residual != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) out[c] += residual[c];
  }
  const double mean = dot_product(out, out, columns) / static_cast<double>(columns);
  const auto inverse = static_cast<T>(1 / std::sqrt(mean + eps));
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) out[c] *= inverse;
  return inverse;
}

template <class T>
void rms_norm_row_backward(const T* out, T inverse, const T* gradient, std::int64_t columns, T* dy) {
  const auto mean = static_cast<T>(dot_product(out, gradient, columns) / static_cast<double>(columns));
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) dy[c] = inverse * (gradient[c] - out[c] * mean);
}

}  // namespace

void CpuBackend::normalize_rows(const Tensor& x, Tensor out, Tensor inverse) {
  dispatch(x.dtype(), "normalize_rows", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(x, [&, from = x.data<T>(), to = out.data<T>(), kept = inverse.data<T>()](std::int64_t r) {
      kept[r] = normalize_row(from + r * columns, columns, to + r * columns);
    });
  });
}

void CpuBackend::normalize_rows_backward(const Tensor& x, const Tensor& inverse, const Tensor& dout, Tensor dx) {
  dispatch(x.dtype(), "normalize_rows_backward", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(x,
             [&, from = x.data<T>(), kept = inverse.data<T>(), gradient = dout.data<T>(), to = dx.data<T>()](std::int64_t r) {
               normalize_row_backward(from + r * columns, kept[r], gradient + r * columns, columns, to + r * columns);
             });
  });
}

void CpuBackend::dropout(const Tensor& x, const DropoutSpec& spec, Tensor out) {
  const cpu::DropoutRows draws(spec);
  dispatch(x.dtype(), "dropout", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(x, [&, from = x.data<T>(), to = out.data<T>()](std::int64_t r) {
      if (to != from) std::copy_n(from + r * columns, columns, to + r * columns);
      if (spec.active()) draws.apply_to_row(r, columns, to + r * columns);
    });
  });
}

void CpuBackend::residual_rms_norm(const Tensor& residual, const Tensor& x, const DropoutSpec& spec, double eps, Tensor out,
                                   Tensor inverse_rms) {
  const cpu::DropoutRows draws(spec);
  dispatch(x.dtype(), "residual_rms_norm", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    const T* const beside = residual.defined() ? residual.data<T>() : nullptr;
    for_rows(x, [&, from = x.data<T>(), to = out.data<T>(), kept = inverse_rms.data<T>()](std::int64_t r) {
      T* const row = to + r * columns;
      std::copy_n(from + r * columns, columns, row);
      if (spec.active()) draws.apply_to_row(r, columns, row);
      kept[r] = rms_norm_row(beside == nullptr ? nullptr : beside + r * columns, columns, eps, row);
    });
  });
}

void CpuBackend::residual_rms_norm_backward(const Tensor& out, const Tensor& inverse_rms, const Tensor& dout,
                                            const DropoutSpec& spec, Tensor dresidual, Tensor dx) {
  const cpu::DropoutRows draws(spec);
  dispatch(out.dtype(), "residual_rms_norm_backward", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = out.columns();
    T* const beside = dresidual.defined() ? dresidual.data<T>() : nullptr;
    const T* const gradient = dout.data<T>();
    for_rows(out, [&, from = out.data<T>(), kept = inverse_rms.data<T>(), to = dx.data<T>()](std::int64_t r) {
      T* const row = to + r * columns;
      rms_norm_row_backward(from + r * columns, kept[r], gradient + r * columns, columns, row);
      if (beside != nullptr) std::copy_n(row, columns, beside + r * columns);
      if (spec.active()) draws.apply_to_row(r, columns, row);
    });
  });
}

}  // namespace gau
