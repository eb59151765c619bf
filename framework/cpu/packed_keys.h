// q · k for few query rows and all keys, for attention that looks at its logits strip by strip.
//
// The general product packs its second operand for every panel of rows; here keys are packed once a call, in tiles of
// kTileKeys keys with their D numbers interleaved, and a strip of eight queries passes over the tiles: 8 × 3 sums in registers,
// and what it writes is still in the cache when the softmax reads it. A row's logits do not depend on which rows it comes with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/cpu/sparse_rows.h"
#include "framework/parallel.h"
#include "framework/tensor.h"

namespace gau::cpu {

template <class T>
class PackedKeys {
 public:
  static constexpr int kVectors = 3;
  static constexpr std::int64_t kTileKeys = kVectors * kLanes<T>;

  /// k [B, L, D].
  explicit PackedKeys(const Tensor& k)
      : length_(k.dim(1)),
        width_(k.dim(2)),
        tiles_((length_ + kTileKeys - 1) / kTileKeys),
        packed_(Tensor::empty({k.dim(0) * tiles_, width_, kTileKeys}, k.dtype())) {
    const T* const from = k.data<T>();
    T* const to = packed_.data<T>();
    parallel_for(k.dim(0) * tiles_, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) pack(from, t, to + t * width_ * kTileKeys);
    });
  }

  /// Numbers of a strip of queries as multiply() wants them: number d of row r at 8 d + r, rows beyond `rows` 0. q: row 0,
  /// rows behind each other.
  void interleave(const T* q, std::int64_t rows, std::vector<T>& queries) const {
    queries.assign(static_cast<std::size_t>(width_ * kStripRows), T(0));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t d = 0; d < width_; ++d) queries[static_cast<std::size_t>(d * kStripRows + r)] = q[r * width_ + d];
    }
  }

  /// out[r · stride + j - first] = query r · key j, for the keys [first, first + count) of one tile of a sequence.
  void multiply(std::int64_t sequence, std::int64_t first, std::int64_t count, const T* queries, std::int64_t rows, T* out,
                std::int64_t stride) const {
    const std::int64_t tile = first / kTileKeys, inside = first - tile * kTileKeys;
    const T* key = packed_.data<T>() + (sequence * tiles_ + tile) * width_ * kTileKeys;
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
    if (count == kTileKeys) {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (int v = 0; v < kVectors; ++v) store<T>(out + r * stride + v * kLanes<T>, sum[r][v]);
      }
      return;
    }
    T whole[kTileKeys];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (int v = 0; v < kVectors; ++v) store<T>(whole + v * kLanes<T>, sum[r][v]);
      std::copy_n(whole + inside, count, out + r * stride);
    }
  }

 private:
  // Tile t of all sequences' tiles; keys beyond the sequence's end are 0.
  void pack(const T* k, std::int64_t t, T* to) const {
    const std::int64_t first = t % tiles_ * kTileKeys, count = std::min(kTileKeys, length_ - first);
    const T* const from = k + (t / tiles_ * length_ + first) * width_;
    for (std::int64_t d = 0; d < width_; ++d) {
      for (std::int64_t j = 0; j < count; ++j) to[d * kTileKeys + j] = from[j * width_ + d];
      std::fill(to + d * kTileKeys + count, to + (d + 1) * kTileKeys, T(0));
    }
  }

  std::int64_t length_, width_, tiles_;
  Tensor packed_;
};

}  // namespace gau::cpu
