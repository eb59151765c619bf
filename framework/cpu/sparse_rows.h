// Products of attention that touch only the keys that matter: strips of eight query rows, each with a list of kept keys.
//
// The smallest weights of a row that together are at most 2^-24 of its largest are lost when they are added in float32: leaving
// them out changes nothing that float32 could show (softmax_pieces finds the threshold row by row). GAU's values are
// twelve times as wide as its keys, so this is where the time goes. Kept keys lie anywhere (blocks of keys are rarely empty
// even when 1 % of the keys matter), hence a list a strip and not a mask of blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/cpu/attention_rows.h"

namespace gau::cpu {

constexpr std::int64_t kStripRows = 8;

/// 64 bytes of T as one value: one register where the machine has AVX-512, several elsewhere.
template <class T>
struct WideOf;
template <>
struct WideOf<float> {
  typedef float Type __attribute__((vector_size(64)));
};
template <>
struct WideOf<double> {
  typedef double Type __attribute__((vector_size(64)));
};
template <class T>
using Wide = typename WideOf<T>::Type;
template <class T>
constexpr std::int64_t kLanes = 64 / static_cast<std::int64_t>(sizeof(T));

// By reference: how such values are passed would depend on the machine's registers.
template <class T>
inline void load(Wide<T>& value, const T* from) {
  std::memcpy(&value, from, sizeof value);
}
template <class T>
inline void store(T* to, const Wide<T>& value) {
  std::memcpy(to, &value, sizeof value);
}

/// The kept keys of one strip, and numbers for each of its rows and kept keys: those of row r and kept key n stand at 8 n + r;
/// rows beyond the strip's end have 0.
template <class T>
struct Strip {
  std::vector<std::int32_t> columns;  ///< of the block's matrix, ascending
  std::vector<T> weights;             ///< attention weights, with dropout
  std::vector<T> slopes;              ///< gradients of the logits
  std::vector<T> region_slopes;       ///< of them, those of one region

  std::size_t size() const { return columns.size(); }
  static std::size_t place(std::size_t key, std::int64_t row) { return key * kStripRows + static_cast<std::size_t>(row); }
};

/// Lists the columns where some row's weight is at least its threshold. `rows` ≤ 8 rows of `width`, `stride` apart; row r's
/// piece p is all zeros unless active[r · pieces + p], and is written so where another row of the strip is active. Returns
/// false as soon as more than `most` columns are kept.
template <class T>
bool list_columns(T* weights, std::int64_t rows, std::int64_t stride, std::int64_t width, const T* thresholds,
                  const std::uint8_t* active, std::int64_t most, Strip<T>& strip) {
  const std::int64_t pieces = pieces_of(width);
  strip.columns.clear();
  for (std::int64_t p = 0; p < pieces; ++p) {
    bool any = false;
    for (std::int64_t r = 0; r < rows; ++r) any = any || active[r * pieces + p];
    if (!any) continue;
    const std::int64_t begin = p * kPiece, count = std::min(kPiece, width - begin);
    std::uint8_t keep[kPiece] = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      T* row = weights + r * stride + begin;
      if (!active[r * pieces + p]) {
        std::fill(row, row + count, T(0));
        continue;
      }
      const T threshold = thresholds[r];
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j) keep[j] = static_cast<std::uint8_t>(keep[j] | !(row[j] < threshold));
    }
    for (std::int64_t j = 0; j < count; ++j) {
      if (keep[j]) strip.columns.push_back(static_cast<std::int32_t>(begin + j));
    }
    if (static_cast<std::int64_t>(strip.size()) > most) return false;
  }
  return true;
}

/// Takes the strip's weights from a matrix at its columns.
template <class T>
void pick_weights(const T* matrix, std::int64_t rows, std::int64_t stride, Strip<T>& strip) {
  strip.weights.assign(strip.size() * kStripRows, T(0));
  for (std::size_t n = 0; n < strip.size(); ++n) {
    for (std::int64_t r = 0; r < rows; ++r) strip.weights[Strip<T>::place(n, r)] = matrix[r * stride + strip.columns[n]];
  }
}

namespace detail {

// Kept keys lie anywhere, which no hardware foresees: the piece of the key so many places down the list is fetched beforehand,
// into the second-level cache (its first level would lose it again).
constexpr std::size_t kAhead = 24;
// Where whole rows are read, the beginning of the one so many places down the list.
constexpr std::size_t kRowsAhead = 4;

// out[r][0 … N·lanes) = Σ_n numbers[n][r] · source row n, for eight rows: 8 N accumulators in registers.
template <class T, int N, class RowOf>
void weighted_sum_piece(const Strip<T>& strip, const T* numbers, RowOf&& row_of, std::int64_t at, std::int64_t rows, T* out,
                        std::int64_t stride) {
  Wide<T> sum[kStripRows][N] = {};
  const std::size_t size = strip.size();
  for (std::size_t n = 0; n < size; ++n) {
    const T* source = row_of(strip.columns[n]) + at;
    const T* later = row_of(strip.columns[std::min(n + kAhead, size - 1)]) + at;
    for (int v = 0; v < N; ++v) __builtin_prefetch(later + v * kLanes<T>, 0, 2);
    const T* weight = numbers + n * kStripRows;
    Wide<T> value[N];
    for (int v = 0; v < N; ++v) load<T>(value[v], source + v * kLanes<T>);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < N; ++v) sum[r][v] += value[v] * weight[r];
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int v = 0; v < N; ++v) store<T>(out + r * stride + at + v * kLanes<T>, sum[r][v]);
  }
}

// target row n += Σ_r numbers[n][r] · in[r], for N·lanes columns.
template <class T, int N, class RowOf>
void spread_piece(const Strip<T>& strip, const T* numbers, RowOf&& row_of, std::int64_t at, std::int64_t rows, const T* in,
                  std::int64_t stride) {
  Wide<T> value[kStripRows][N] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int v = 0; v < N; ++v) load<T>(value[r][v], in + r * stride + at + v * kLanes<T>);
  }
  for (std::size_t n = 0; n < strip.size(); ++n) {
    T* target = row_of(strip.columns[n]) + at;
    const T* weight = numbers + n * kStripRows;
    Wide<T> sum[N];
    for (int v = 0; v < N; ++v) load<T>(sum[v], target + v * kLanes<T>);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < N; ++v) sum[v] += value[r][v] * weight[r];
    }
    for (int v = 0; v < N; ++v) store<T>(target + v * kLanes<T>, sum[v]);
  }
}

// Integers as wide as T, to choose lanes by.
template <class T>
struct LanesOf;
template <>
struct LanesOf<float> {
  typedef std::int32_t Type __attribute__((vector_size(64)));
};
template <>
struct LanesOf<double> {
  typedef std::int64_t Type __attribute__((vector_size(64)));
};

// Lane l of the result: of a where l has no bit `kStep`, else of b, two lanes kStep apart added.
template <class T, int kStep>
Wide<T> add_apart(const Wide<T>& a, const Wide<T>& b) {
  typename LanesOf<T>::Type low, high;
  for (int l = 0; l < kLanes<T>; ++l) {
    low[l] = (l & ~kStep) + ((l & kStep) ? static_cast<int>(kLanes<T>) : 0);
    high[l] = low[l] + kStep;
  }
  return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
}

// out[r] = the sum of the lanes of row r.
template <class T>
[[gnu::always_inline]] inline void sums_of_rows(const Wide<T> (&sum)[kStripRows], T* out) {
  Wide<T> two[4], four[2];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) two[n] = add_apart<T, 1>(sum[2 * n], sum[2 * n + 1]);
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) four[n] = add_apart<T, 2>(two[2 * n], two[2 * n + 1]);
  const Wide<T> eight = add_apart<T, 4>(four[0], four[1]);
  T lanes[kLanes<T>];
  store<T>(lanes, eight);
  for (std::int64_t r = 0; r < kStripRows; ++r) {
    out[r] = lanes[r];
    for (std::int64_t l = r + kStripRows; l < kLanes<T>; l += kStripRows) out[r] += lanes[l];
  }
}

}  // namespace detail

/// out[r] = Σ over kept keys of number · row_of(column), for columns [begin, end) of the strip's `rows` output rows.
template <class T, class RowOf>
void weighted_sum(const Strip<T>& strip, const T* numbers, RowOf&& row_of, std::int64_t begin, std::int64_t end,
                  std::int64_t rows, T* out, std::int64_t stride) {
  std::int64_t at = begin;
  for (; at + 3 * kLanes<T> <= end; at += 3 * kLanes<T>)
    detail::weighted_sum_piece<T, 3>(strip, numbers, row_of, at, rows, out, stride);
  for (; at + kLanes<T> <= end; at += kLanes<T>)
    detail::weighted_sum_piece<T, 1>(strip, numbers, row_of, at, rows, out, stride);
  for (; at < end; ++at) {
    for (std::int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (std::size_t n = 0; n < strip.size(); ++n) {
        sum += numbers[Strip<T>::place(n, r)] * row_of(strip.columns[n])[at];
      }
      out[r * stride + at] = sum;
    }
  }
}

/// row_of(column) += Σ_r number · in[r] for every kept key, on columns [begin, end).
template <class T, class RowOf>
void spread(const Strip<T>& strip, const T* numbers, RowOf&& row_of, std::int64_t begin, std::int64_t end, std::int64_t rows,
            const T* in, std::int64_t stride) {
  std::int64_t at = begin;
  for (; at + 3 * kLanes<T> <= end; at += 3 * kLanes<T>)
    detail::spread_piece<T, 3>(strip, numbers, row_of, at, rows, in, stride);
  for (; at + kLanes<T> <= end; at += kLanes<T>) detail::spread_piece<T, 1>(strip, numbers, row_of, at, rows, in, stride);
  for (; at < end; ++at) {
    for (std::size_t n = 0; n < strip.size(); ++n) {
      for (std::int64_t r = 0; r < rows; ++r) {
        row_of(strip.columns[n])[at] += numbers[Strip<T>::place(n, r)] * in[r * stride + at];
      }
    }
  }
}

/// out[8 n + r] = in[r] · row_of(column n) over `width` elements; rows beyond the strip's end have 0.
template <class T, class RowOf>
void dots(const std::vector<std::int32_t>& columns, RowOf&& row_of, std::int64_t width, std::int64_t rows, const T* in,
          std::int64_t in_stride, std::vector<T>& out) {
  const T* row[kStripRows];
  for (std::int64_t r = 0; r < kStripRows; ++r) row[r] = in + std::min(r, rows - 1) * in_stride;
  const std::int64_t whole = width / kLanes<T> * kLanes<T>;
  out.resize(columns.size() * kStripRows);
  for (std::size_t n = 0; n < columns.size(); ++n) {
    const T* key = row_of(columns[n]);
    const T* later = row_of(columns[std::min(n + detail::kRowsAhead, columns.size() - 1)]);
    for (std::int64_t at = 0; at < std::min(whole, 8 * kLanes<T>); at += kLanes<T>) __builtin_prefetch(later + at, 0, 3);
    Wide<T> sum[kStripRows] = {};
    for (std::int64_t at = 0; at < whole; at += kLanes<T>) {
      Wide<T> value, other;
      load<T>(value, key + at);
#pragma GCC unroll 8
      for (int r = 0; r < kStripRows; ++r) {
        load<T>(other, row[r] + at);
        sum[r] += value * other;
      }
    }
    T* const total = out.data() + Strip<T>::place(n, 0);
    detail::sums_of_rows<T>(sum, total);
    for (std::int64_t at = whole; at < width; ++at) {
      for (std::int64_t r = 0; r < kStripRows; ++r) total[r] += key[at] * row[r][at];
    }
    std::fill(total + rows, total + kStripRows, T(0));
  }
}

}  // namespace gau::cpu
