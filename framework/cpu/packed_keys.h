// q · k for a strip of eight query rows and all keys, to see which keys can matter.
//
// The general product packs its second operand for every panel of rows; here keys are packed once a call, in tiles of
// kTileKeys keys with their D numbers interleaved, and a strip of eight queries passes over the tiles: 8 × 3 sums in registers.
// These logits only choose keys (key_search.h); byte_keys.h does the same faster and less exactly. Both say by how much they
// may be off.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "framework/cpu/sparse_rows.h"
#include "framework/parallel.h"
#include "framework/tensor.h"

namespace gau::cpu {

/// √Σ x².
template <class T>
T length_of(const T* x, std::int64_t count) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

/// The maximum of what came before and x; what is no number stays.
template <class T>
T larger_or_nan(T before, T x) {
  return x > before || x != x ? x : before;
}

/// How far a sum of `count` products in T is from the exact one, for vectors of length 1.
template <class T>
constexpr T rounding_of_dot(std::int64_t count) {
  return static_cast<T>(count) * std::numeric_limits<T>::epsilon();
}

template <class T>
class PackedKeys {
 public:
  static constexpr int kVectors = 3;
  static constexpr std::int64_t kTileKeys = kVectors * kLanes<T>;

  /// A strip's queries: number d of row r at 8 d + r, rows beyond the strip's end 0.
  struct Queries {
    std::vector<T> numbers;
    T error[kStripRows];  ///< bound of what multiply() is off by; no number where a query is not finite
  };

  /// k [B, L, D].
  explicit PackedKeys(const Tensor& k)
      : length_(k.dim(1)),
        width_(k.dim(2)),
        tiles_((length_ + kTileKeys - 1) / kTileKeys),
        packed_(Tensor::empty({k.dim(0) * tiles_, width_, kTileKeys}, k.dtype())),
        longest_(static_cast<std::size_t>(k.dim(0) * tiles_)) {
    const T* const from = k.data<T>();
    T* const to = packed_.data<T>();
    parallel_for(k.dim(0) * tiles_, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) pack(from, t, to + t * width_ * kTileKeys);
    });
    for (const T longest : longest_) largest_ = larger_or_nan(largest_, longest);
  }

  /// Whether all keys are finite. Otherwise nothing can be said of their logits.
  bool finite() const { return std::isfinite(largest_); }
  std::int64_t tiles() const { return tiles_; }

  /// q: row 0 of `rows`, rows behind each other.
  void prepare(const T* q, std::int64_t rows, Queries& queries) const {
    queries.numbers.assign(static_cast<std::size_t>(width_ * kStripRows), T(0));
    std::fill_n(queries.error, kStripRows, T(0));
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const row = q + r * width_;
      for (std::int64_t d = 0; d < width_; ++d) queries.numbers[static_cast<std::size_t>(d * kStripRows + r)] = row[d];
      queries.error[r] = 2 * rounding_of_dot<T>(width_) * length_of(row, width_) * largest_;
    }
  }

  /// out[r · kTileKeys + j] = query r · key j of a tile; keys beyond the sequence's end give 0.
  void multiply(std::int64_t sequence, std::int64_t tile, const Queries& strip, T* out) const {
    const T* key = packed_.data<T>() + (sequence * tiles_ + tile) * width_ * kTileKeys;
    const T* queries = strip.numbers.data();
    Wide<T> sum[kStripRows][kVectors] = {};
    for (std::int64_t d = 0; d < width_; ++d, key += kTileKeys, queries += kStripRows) {
      Wide<T> value[kVectors];
      for (int v = 0; v < kVectors; ++v) load<T>(value[v], key + v * kLanes<T>);
#pragma GCC unroll 8
      for (int r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) sum[r][v] += value[v] * queries[r];
      }
    }
    for (int r = 0; r < kStripRows; ++r) {
      for (int v = 0; v < kVectors; ++v) store<T>(out + r * kTileKeys + v * kLanes<T>, sum[r][v]);
    }
  }

 private:
  // Tile t of all sequences' tiles; keys beyond the sequence's end are 0.
  void pack(const T* k, std::int64_t t, T* to) {
    const std::int64_t first = t % tiles_ * kTileKeys, count = std::min(kTileKeys, length_ - first);
    const T* const from = k + (t / tiles_ * length_ + first) * width_;
    for (std::int64_t d = 0; d < width_; ++d) {
      for (std::int64_t j = 0; j < count; ++j) to[d * kTileKeys + j] = from[j * width_ + d];
      std::fill(to + d * kTileKeys + count, to + (d + 1) * kTileKeys, T(0));
    }
    T& longest = longest_[static_cast<std::size_t>(t)];
    for (std::int64_t j = 0; j < count; ++j) {
      longest = larger_or_nan(longest, length_of(from + j * width_, width_));
    }
  }

  std::int64_t length_, width_, tiles_;
  Tensor packed_;
  std::vector<T> longest_;  // by tile
  T largest_ = 0;
};

}  // namespace gau::cpu
