// Attention over two sets of keys from attention over each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/cpu/cpu_backend.h"
#include "framework/parallel.h"

namespace gau::cpu {
namespace {

constexpr std::int64_t kMergeGrain = 16;  // rows

template <class T>
void merge(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp) {
  const std::int64_t columns = out.columns();
  const double* const theirs = part_log_sum_exp.data<double>();
  double* const ours = log_sum_exp.data<double>();
  parallel_for(out.rows(), kMergeGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      // Nothing was seen; the difference of two -∞ would be no number.
      if (theirs[r] == -std::numeric_limits<double>::infinity()) continue;
      const double larger = std::max(ours[r], theirs[r]);
      const double a = std::exp(ours[r] - larger), b = std::exp(theirs[r] - larger);
      const T keep = static_cast<T>(a / (a + b)), take = static_cast<T>(b / (a + b));
      ours[r] = larger + std::log(a + b);
      T* const to = out.data<T>() + r * columns;
      const T* const from = part.data<T>() + r * columns;
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) to[c] = keep * to[c] + take * from[c];
    }
  });
}

}  // namespace
}  // namespace gau::cpu

namespace gau {

void CpuBackend::merge_attention(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp) {
  if (out.dtype() == DType::kF64) {
    cpu::merge<double>(part, part_log_sum_exp, out, log_sum_exp);
  } else {
    cpu::merge<float>(part, part_log_sum_exp, out, log_sum_exp);
  }
}

}  // namespace gau
