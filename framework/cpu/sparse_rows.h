// Products of attention that touch only the keys that matter: strips of eight query rows, each with a list of kept keys.
//
// A weight below 2^-24 / n of its row's largest (n columns) is lost when it is added in float32, so that leaving it out changes
// nothing that float32 could show: all dropped weights of a row together are below 2^-24 of its largest. GAU's values are
// twelve times as wide as its keys, so this is where the time goes. Kept keys lie anywhere (blocks of keys are rarely empty
// even when 1 % of the keys matter), hence a list a strip and not a mask of blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

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

/// The kept keys of one strip, and a number for each of its rows and kept keys: that of row r and kept key n at numbers[8 n +
/// r]; rows beyond the strip's end have 0.
template <class T>
struct Strip {
  std::vector<std::int32_t> columns;  ///< of the block's matrix, ascending
  std::vector<T> numbers;

  std::size_t size() const { return columns.size(); }
  const T* at(std::size_t n) const { return numbers.data() + n * kStripRows; }
};

/// Lists the columns where some row's weight is at least its threshold. `rows` ≤ 8 rows of `width`, `stride` apart. Returns
/// false as soon as more than `most` columns are kept.
template <class T>
bool list_columns(const T* weights, std::int64_t rows, std::int64_t stride, std::int64_t width, const T* thresholds,
                  std::int64_t most, Strip<T>& strip) {
  constexpr std::int64_t kPiece = 64;
  strip.columns.clear();
  for (std::int64_t begin = 0; begin < width; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, width - begin);
    std::uint8_t keep[kPiece] = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = weights + r * stride + begin;
      const T threshold = thresholds[r];
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j) keep[j] = static_cast<std::uint8_t>(keep[j] | (row[j] >= threshold));
    }
    for (std::int64_t j = 0; j < count; ++j) {
      if (keep[j]) strip.columns.push_back(static_cast<std::int32_t>(begin + j));
    }
    if (static_cast<std::int64_t>(strip.size()) > most) return false;
  }
  return true;
}

/// Takes the strip's numbers from a matrix at its columns.
template <class T>
void pick_numbers(const T* matrix, std::int64_t rows, std::int64_t stride, Strip<T>& strip) {
  strip.numbers.assign(strip.size() * kStripRows, T(0));
  for (std::size_t n = 0; n < strip.size(); ++n) {
    for (std::int64_t r = 0; r < rows; ++r) {
      strip.numbers[n * kStripRows + static_cast<std::size_t>(r)] = matrix[r * stride + strip.columns[n]];
    }
  }
}

namespace detail {

// out[r][0 … N·lanes) = Σ_n weight[n][r] · source row n, for eight rows: 8 N accumulators in registers.
template <class T, int N, class RowOf>
void weighted_sum_piece(const Strip<T>& strip, RowOf&& row_of, std::int64_t at, std::int64_t rows, T* out,
                        std::int64_t stride) {
  Wide<T> sum[kStripRows][N] = {};
  for (std::size_t n = 0; n < strip.size(); ++n) {
    const T* source = row_of(strip.columns[n]) + at;
    const T* weight = strip.at(n);
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

// target row n += Σ_r weight[n][r] · in[r], for N·lanes columns.
template <class T, int N, class RowOf>
void spread_piece(const Strip<T>& strip, RowOf&& row_of, std::int64_t at, std::int64_t rows, const T* in, std::int64_t stride) {
  Wide<T> value[kStripRows][N] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int v = 0; v < N; ++v) load<T>(value[r][v], in + r * stride + at + v * kLanes<T>);
  }
  for (std::size_t n = 0; n < strip.size(); ++n) {
    T* target = row_of(strip.columns[n]) + at;
    const T* weight = strip.at(n);
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

}  // namespace detail

/// out[r] = Σ over kept keys of weight · row_of(column), for columns [begin, end) of the strip's `rows` output rows.
template <class T, class RowOf>
void weighted_sum(const Strip<T>& strip, RowOf&& row_of, std::int64_t begin, std::int64_t end, std::int64_t rows, T* out,
                  std::int64_t stride) {
  std::int64_t at = begin;
  for (; at + 3 * kLanes<T> <= end; at += 3 * kLanes<T>) detail::weighted_sum_piece<T, 3>(strip, row_of, at, rows, out, stride);
  for (; at + kLanes<T> <= end; at += kLanes<T>) detail::weighted_sum_piece<T, 1>(strip, row_of, at, rows, out, stride);
  for (; at < end; ++at) {
    for (std::int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (std::size_t n = 0; n < strip.size(); ++n) {
        sum += strip.at(n)[r] * row_of(strip.columns[n])[at];
      }
      out[r * stride + at] = sum;
    }
  }
}

/// row_of(column) += Σ_r weight · in[r] for every kept key, on columns [begin, end).
template <class T, class RowOf>
void spread(const Strip<T>& strip, RowOf&& row_of, std::int64_t begin, std::int64_t end, std::int64_t rows, const T* in,
            std::int64_t stride) {
  std::int64_t at = begin;
  for (; at + 3 * kLanes<T> <= end; at += 3 * kLanes<T>) detail::spread_piece<T, 3>(strip, row_of, at, rows, in, stride);
  for (; at + kLanes<T> <= end; at += kLanes<T>) detail::spread_piece<T, 1>(strip, row_of, at, rows, in, stride);
  for (; at < end; ++at) {
    for (std::size_t n = 0; n < strip.size(); ++n) {
      for (std::int64_t r = 0; r < rows; ++r) {
        row_of(strip.columns[n])[at] += strip.at(n)[r] * in[r * stride + at];
      }
    }
  }
}

/// matrix[r][column] = in[r] · row_of(column) over `width` elements, at the strip's columns.
template <class T, class RowOf>
void dots(const Strip<T>& strip, RowOf&& row_of, std::int64_t width, std::int64_t rows, const T* in, std::int64_t in_stride,
          T* matrix, std::int64_t stride) {
  const T* row[kStripRows];
  for (std::int64_t r = 0; r < kStripRows; ++r) row[r] = in + std::min(r, rows - 1) * in_stride;
  const std::int64_t whole = width / kLanes<T> * kLanes<T>;
  for (const std::int32_t column : strip.columns) {
    const T* key = row_of(column);
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
    for (std::int64_t r = 0; r < rows; ++r) {
      T total = 0;
      for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) total += sum[r][lane];
      for (std::int64_t at = whole; at < width; ++at) total += key[at] * row[r][at];
      matrix[r * stride + column] = total;
    }
  }
}

}  // namespace gau::cpu
