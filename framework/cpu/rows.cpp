// Rows × columns: scaling, picking and placing rows, rotary positions.
#include <algorithm>
#include <cstring>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/cpu/row_functions.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::rotate_row;
using cpu::rows_per_block;

// row(r) for every row, in blocks.
template <class Row>
void for_rows(std::int64_t rows, std::int64_t columns, const Row& row) {
  parallel_for(rows, rows_per_block(columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r);
  });
}

}  // namespace

void CpuBackend::scale_rows(const Tensor& x, const Tensor& factor, Tensor out) {
  dispatch(x.dtype(), "scale_rows", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(x.rows(), columns, [&, from = x.data<T>(), by = factor.data<T>(), to = out.data<T>()](std::int64_t r) {
      const T scale = by[r];
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) to[r * columns + c] = from[r * columns + c] * scale;
    });
  });
}

void CpuBackend::scale_columns(const Tensor& x, const Tensor& factor, Tensor out) {
  dispatch(x.dtype(), "scale_columns", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(x.rows(), columns, [&, from = x.data<T>(), by = factor.data<T>(), to = out.data<T>()](std::int64_t r) {
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) to[r * columns + c] = from[r * columns + c] * by[c];
    });
  });
}

void CpuBackend::gather_rows(const Tensor& x, const Tensor& rows, Tensor out) {
  dispatch(x.dtype(), "gather_rows", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(rows.size(), columns,
             [&, from = x.data<T>(), index = rows.data<std::int32_t>(), to = out.data<T>()](std::int64_t m) {
               T* const row = to + m * columns;
               if (index[m] < 0) {
                 std::fill(row, row + columns, T(0));
               } else {
                 std::copy_n(from + index[m] * columns, columns, row);
               }
             });
  });
}

void CpuBackend::scatter_rows(const Tensor& x, const Tensor& rows, Tensor out) {
  fill(out, 0);
  dispatch(x.dtype(), "scatter_rows", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.columns();
    for_rows(rows.size(), columns,
             [&, from = x.data<T>(), index = rows.data<std::int32_t>(), to = out.data<T>()](std::int64_t m) {
               if (index[m] >= 0) std::copy_n(from + m * columns, columns, to + index[m] * columns);
             });
  });
}

void CpuBackend::rotate(const Tensor& x, const RotaryTable& table, const Tensor& positions, bool inverse, Tensor out) {
  const cpu::TableRows places(table);
  const std::int64_t length = x.dim(1), columns = x.columns(), pairs = columns / 2;
  const std::int32_t* const given = positions.defined() ? positions.data<std::int32_t>() : nullptr;
  dispatch(x.dtype(), "rotate", [&](auto zero) {
    using T = decltype(zero);
    const T* const from = x.data<T>();
    const T* const cos = table.cos.data<T>();
    const T* const sin = table.sin.data<T>();
    T* const to = out.data<T>();
    for_rows(x.rows(), columns, [&](std::int64_t r) {
      const std::int64_t position = given != nullptr ? given[r] : r % length;
      if (position < 0) {
        if (to != from) std::copy_n(from + r * columns, columns, to + r * columns);
        return;
      }
      const std::int64_t place = places.at(r / length, position) * pairs;
      rotate_row(from + r * columns, cos + place, sin + place, inverse ? T(-1) : T(1), pairs, to + r * columns);
    });
  });
}

}  // namespace gau
