// Look-up of embedding rows, and its gradient without a race: tokens are grouped by id (counting sort, which keeps their
// order), and each row of the table is summed by one thread.
#include <algorithm>
#include <vector>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;

constexpr std::int64_t kIdsPerBlock = 32;
constexpr std::int64_t kRowsPerBlock = 256;

// Tokens grouped by id: those of id i are order[first[i]] … order[first[i + 1] - 1], ascending.
struct Groups {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> order;

  Groups(const std::int32_t* ids, std::int64_t count, std::int64_t kinds)
      : first(static_cast<std::size_t>(kinds) + 1, 0), order(static_cast<std::size_t>(count)) {
    for (std::int64_t n = 0; n < count; ++n) ++first[static_cast<std::size_t>(ids[n]) + 1];
    for (std::size_t id = 1; id < first.size(); ++id) first[id] += first[id - 1];
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (std::int64_t n = 0; n < count; ++n) order[static_cast<std::size_t>(next[static_cast<std::size_t>(ids[n])]++)] = n;
  }
};

template <class T>
void add_row(const T* from, std::int64_t columns, T* to) {
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) to[c] += from[c];
}

template <class T>
void add_by_id(const T* dout, std::int64_t columns, const Groups& groups, std::int64_t pad_id, std::int64_t kinds, T* dword) {
  parallel_for(kinds, kIdsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t id = begin; id < end; ++id) {
      if (id == pad_id) continue;
      const auto at = static_cast<std::size_t>(id);
      for (std::int64_t i = groups.first[at]; i < groups.first[at + 1]; ++i) {
        add_row(dout + groups.order[static_cast<std::size_t>(i)] * columns, columns, dword + id * columns);
      }
    }
  });
}

// Few types, many tokens: sums over fixed blocks of tokens in double, then over the blocks in order.
template <class T>
void add_by_type(const T* dout, const std::int32_t* types, std::int64_t tokens, std::int64_t columns, std::int64_t kinds,
                 T* dtype_table) {
  const std::int64_t table = kinds * columns;
  const std::int64_t blocks = (tokens + kRowsPerBlock - 1) / kRowsPerBlock;
  std::vector<double> parts(static_cast<std::size_t>(blocks * table), 0.0);
  parallel_for(tokens, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    double* const part = parts.data() + begin / kRowsPerBlock * table;
    for (std::int64_t n = begin; n < end; ++n) {
      double* const to = part + (types == nullptr ? 0 : types[n]) * columns;
      const T* const from = dout + n * columns;
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) to[c] += static_cast<double>(from[c]);
    }
  });
  for (std::int64_t i = 0; i < table; ++i) {
    double total = 0;
    for (std::int64_t block = 0; block < blocks; ++block) total += parts[static_cast<std::size_t>(block * table + i)];
    dtype_table[i] += static_cast<T>(total);
  }
}

}  // namespace

void CpuBackend::embed(const Tensor& word, const Tensor& type, const Tensor& ids, const Tensor& types, Tensor out) {
  const std::int32_t* const id = ids.data<std::int32_t>();
  const std::int32_t* const kind = types.defined() ? types.data<std::int32_t>() : nullptr;
  const std::int64_t columns = word.columns();
  dispatch(word.dtype(), "embed", [&](auto zero) {
    using T = decltype(zero);
    const T* const words = word.data<T>();
    const T* const kinds = type.data<T>();
    T* const to = out.data<T>();
    parallel_for(ids.size(), cpu::rows_per_block(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* const left = words + id[n] * columns;
        const T* const right = kinds + (kind == nullptr ? 0 : kind[n]) * columns;
        T* const row = to + n * columns;
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) row[c] = left[c] + right[c];
      }
    });
  });
}

void CpuBackend::embed_backward(const Tensor& dout, const Tensor& ids, const Tensor& types, std::int64_t pad_id, Tensor dword,
                                Tensor dtype_table) {
  const std::int64_t columns = dout.columns();
  dispatch(dout.dtype(), "embed_backward", [&](auto zero) {
    using T = decltype(zero);
    const T* const from = dout.data<T>();
    if (dword.defined()) {
      const Groups groups(ids.data<std::int32_t>(), ids.size(), dword.rows());
      add_by_id(from, columns, groups, pad_id, dword.rows(), dword.data<T>());
    }
    if (dtype_table.defined()) {
      const std::int32_t* const kinds = types.defined() ? types.data<std::int32_t>() : nullptr;
      add_by_type(from, kinds, ids.size(), columns, dtype_table.rows(), dtype_table.data<T>());
    }
  });
}

}  // namespace gau
