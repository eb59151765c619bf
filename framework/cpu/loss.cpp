// Cross-entropy by rows: loss = log Σ exp(logits) - logits[label], its gradient softmax - onehot. The row's maximum is taken
// off before exp, so that no row overflows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/cpu/reduce.h"
#include "framework/cpu/vector_math.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::rows_per_block;

template <class T>
struct RowResult {
  double log_sum_exp;
  std::int32_t largest;
};

template <class T>
T largest_value(const T* row, std::int64_t columns) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t c = 0; c < columns; ++c) largest = row[c] > largest ? row[c] : largest;
  return largest;
}

template <class T>
RowResult<T> log_sum_exp(const T* row, std::int64_t columns) {
  const T largest = largest_value(row, columns);
  const T* const first = std::find(row, row + columns, largest);
  const double sum = cpu::sum_values(columns, [=](std::int64_t c) { return cpu::vexp(row[c] - largest); });
  // A row of NaN alone has no largest element; its loss is NaN.
  return {static_cast<double>(largest) + std::log(sum), static_cast<std::int32_t>(first == row + columns ? 0 : first - row)};
}

}  // namespace

void CpuBackend::cross_entropy(const Tensor& logits, const Tensor& labels, Tensor row_loss, Tensor predicted,
                               Tensor log_sum_exp_out) {
  const std::int32_t* const label = labels.data<std::int32_t>();
  double* const loss = row_loss.data<double>();
  std::int32_t* const best = predicted.data<std::int32_t>();
  dispatch(logits.dtype(), "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = logits.columns();
    const T* const from = logits.data<T>();
    T* const kept = log_sum_exp_out.data<T>();
    parallel_for(logits.rows(), rows_per_block(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m) {
        const T* const row = from + m * columns;
        const RowResult<T> result = log_sum_exp(row, columns);
        kept[m] = static_cast<T>(result.log_sum_exp);
        best[m] = result.largest;
        loss[m] = label[m] < 0 ? 0 : result.log_sum_exp - static_cast<double>(row[label[m]]);
      }
    });
  });
}

void CpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& labels, const Tensor& log_sum_exp_in, double scale,
                                        Tensor dlogits) {
  const std::int32_t* const label = labels.data<std::int32_t>();
  dispatch(logits.dtype(), "cross_entropy_backward", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = logits.columns();
    const T* const from = logits.data<T>();
    const T* const kept = log_sum_exp_in.data<T>();
    T* const to = dlogits.data<T>();
    const auto factor = static_cast<T>(scale);
    parallel_for(logits.rows(), rows_per_block(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m) {
        const T* const row = from + m * columns;
        T* const gradient = to + m * columns;
        if (label[m] < 0) {
          std::fill(gradient, gradient + columns, T(0));
          continue;
        }
        const T shift = kept[m];
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) gradient[c] = factor * cpu::vexp(row[c] - shift);
        gradient[label[m]] -= factor;
      }
    });
  });
}

}  // namespace gau
