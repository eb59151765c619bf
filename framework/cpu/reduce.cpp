// Sums over elements and over rows: a partial sum for each fixed block, then the partial sums in order.
#include "framework/cpu/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::kBlockElements;

std::size_t block_count(std::int64_t n, std::int64_t grain) { return static_cast<std::size_t>((n + grain - 1) / grain); }

// part(begin, end) for each block, added in the order of the blocks.
template <class Part>
double sum_blocks(std::int64_t n, const Part& part) {
  std::vector<double> parts(block_count(n, kBlockElements));
  parallel_for(n, kBlockElements, [&](std::int64_t begin, std::int64_t end) {
    parts[static_cast<std::size_t>(begin / kBlockElements)] = part(begin, end);
  });
  double total = 0;
  for (const double value : parts) total += value;
  return total;
}

template <class T>
void column_dot_blocks(const T* a, const T* b, std::int64_t rows, std::int64_t columns, T* out) {
  const std::int64_t grain = cpu::rows_per_block(columns);
  const auto width = static_cast<std::size_t>(columns);
  std::vector<double> parts(block_count(rows, grain) * width, 0.0);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    double* const part = parts.data() + begin / grain * columns;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const left = a + r * columns;
      const T* const right = b + r * columns;
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) part[c] += static_cast<double>(left[c]) * static_cast<double>(right[c]);
    }
  });
  for (std::int64_t c = 0; c < columns; ++c) {
    double total = 0;
    for (std::size_t at = static_cast<std::size_t>(c); at < parts.size(); at += width) total += parts[at];
    out[c] = static_cast<T>(total);
  }
}

// The exponent's bits are all ones in infinity and NaN, so the largest pattern without its sign tells.
template <class T>
bool all_finite(const T* values, std::int64_t begin, std::int64_t end) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  Bits largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = begin; i < end; ++i) {
    const Bits magnitude = std::bit_cast<Bits>(values[i]) & std::numeric_limits<Bits>::max();
    largest = std::max(largest, magnitude);
  }
  return largest < std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
}

}  // namespace

double CpuBackend::sum(const Tensor& x) {
  double total = 0;
  dispatch(x.dtype(), "sum", [&](auto zero) {
    const auto* const values = x.data<decltype(zero)>();
    total = sum_blocks(x.size(), [&](std::int64_t begin, std::int64_t end) {
      return cpu::sum_values(end - begin, [from = values + begin](std::int64_t i) { return from[i]; });
    });
  });
  return total;
}

double CpuBackend::sum_of_squares(const Tensor& x) { return dot(x, x); }

double CpuBackend::dot(const Tensor& a, const Tensor& b) {
  double total = 0;
  dispatch(a.dtype(), "dot", [&](auto zero) {
    using T = decltype(zero);
    const T* const left = a.data<T>();
    const T* const right = b.data<T>();
    total = sum_blocks(a.size(), [&](std::int64_t begin, std::int64_t end) {
      return cpu::dot_product(left + begin, right + begin, end - begin);
    });
  });
  return total;
}

void CpuBackend::column_dot(const Tensor& a, const Tensor& b, Tensor out) {
  dispatch(a.dtype(), "column_dot", [&](auto zero) {
    using T = decltype(zero);
    column_dot_blocks(a.data<T>(), b.data<T>(), a.rows(), a.columns(), out.data<T>());
  });
}

std::int64_t CpuBackend::first_non_finite(const Tensor& x) {
  std::vector<std::int64_t> firsts(block_count(x.size(), kBlockElements), -1);
  dispatch(x.dtype(), "first_non_finite", [&](auto zero) {
    const auto* const values = x.data<decltype(zero)>();
    parallel_for(x.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
      if (all_finite(values, begin, end)) return;
      const auto* const found = std::find_if(values + begin, values + end, [](auto value) { return !std::isfinite(value); });
      firsts[static_cast<std::size_t>(begin / kBlockElements)] = found - values;
    });
  });
  const auto first = std::find_if(firsts.begin(), firsts.end(), [](std::int64_t index) { return index >= 0; });
  return first == firsts.end() ? -1 : *first;
}

}  // namespace gau
