// q · k in bytes: four times as many products an instruction as float32, for choosing keys.
//
// Each key and each query row becomes bytes times a scale of its own: k = s_k · b_k + e_k. Sums of products of bytes are exact
// in 32 bits, so with |·| the length of a vector
//   |q · k - s_q s_k (b_q · b_k)| = |e_q · k + (q - e_q) · e_k| ≤ |e_q| |k| + (|q| + |e_q|) |e_k|,
// and |e| is known, not estimated. At s = 128 and D = 128 that is about 2; a key matters within 20 to 30 of the largest logit.
// The instruction multiplies unsigned by signed bytes: keys get 128 added, and a row's sum starts at -128 Σ b_q.
#pragma once

#if defined(__AVX512VNNI__)

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/cpu/packed_keys.h"

namespace gau::cpu {

class ByteKeys {
 public:
  static constexpr int kVectors = 3;
  static constexpr std::int64_t kTileKeys = kVectors * 16;

  /// A strip's queries: bytes 4 n to 4 n + 3 of row r in word 8 n + r.
  struct Queries {
    std::vector<std::int32_t> words;
    std::int32_t start[kStripRows];
    float scale[kStripRows];
    float error[kStripRows];  ///< bound of what multiply() is off by; no number where a query is not finite
  };

  /// k [B, L, D].
  explicit ByteKeys(const Tensor& k)
      : length_(k.dim(1)),
        width_(k.dim(2)),
        quads_((width_ + 3) / 4),
        tiles_((length_ + kTileKeys - 1) / kTileKeys),
        words_(Tensor::empty({k.dim(0) * tiles_, quads_, kTileKeys}, DType::kI32)),
        scales_(Tensor::empty({k.dim(0) * tiles_, kTileKeys}, DType::kF32)),
        extremes_(static_cast<std::size_t>(k.dim(0) * tiles_)) {
    parallel_for(k.dim(0) * tiles_, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) pack(k.data<float>(), t);
    });
    for (const Extremes& tile : extremes_) largest_.join(tile.length, tile.error);
  }

  /// Whether all keys are finite. Otherwise nothing can be said of their logits.
  bool finite() const { return std::isfinite(largest_.length) && std::isfinite(largest_.error); }
  std::int64_t tiles() const { return tiles_; }

  /// q: row 0 of `rows`, rows behind each other.
  void prepare(const float* q, std::int64_t rows, Queries& queries) const {
    queries.words.assign(static_cast<std::size_t>(quads_ * kStripRows), 0);
    std::fill_n(queries.start, kStripRows, 0);
    std::fill_n(queries.scale, kStripRows, 0.0F);
    std::fill_n(queries.error, kStripRows, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const row = q + r * width_;
      const float scale = scale_of(row);
      float squares = 0;
      for (std::int64_t d = 0; d < width_; ++d) {
        const std::int32_t byte = byte_of(row[d], scale, squares);
        queries.start[r] -= 128 * byte;
        put(queries.words[static_cast<std::size_t>(d / 4 * kStripRows + r)], d % 4, byte);
      }
      const float length = length_of(row, width_), error = std::sqrt(squares);
      queries.scale[r] = scale;
      queries.error[r] = kMargin * (error * largest_.length + (length + error) * largest_.error +
                                    rounding_of_dot<float>(width_ + kMoreRoundings) * length * largest_.length);
    }
  }

  /// out[r · kTileKeys + j] ≈ query r · key j of a tile; keys beyond the sequence's end give 0.
  void multiply(std::int64_t sequence, std::int64_t tile, const Queries& strip, float* out) const {
    const std::int64_t at = sequence * tiles_ + tile;
    const std::int32_t* key = words_.data<std::int32_t>() + at * quads_ * kTileKeys;
    const std::int32_t* queries = strip.words.data();
    Bytes sum[kStripRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Bytes{} + strip.start[r];
    }
    for (std::int64_t n = 0; n < quads_; ++n, key += kTileKeys, queries += kStripRows) {
      Bytes value[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) std::memcpy(&value[v], key + v * 16, sizeof value[v]);
#pragma GCC unroll 8
      for (int r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) sum[r][v] = plus_products(sum[r][v], value[v], queries + r);
      }
    }
    const float* const scales = scales_.data<float>() + at * kTileKeys;
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      Wide<float> scale;
      load<float>(scale, scales + v * 16);
#pragma GCC unroll 8
      for (int r = 0; r < kStripRows; ++r) {
        const Wide<float> whole = __builtin_convertvector(sum[r][v], Wide<float>);
        store<float>(out + r * kTileKeys + v * 16, whole * (scale * strip.scale[r]));
      }
    }
  }

 private:
  typedef std::int32_t Bytes __attribute__((vector_size(64)));  // four bytes, or a sum, in each lane

  // sum + in each lane the four products of a key's unsigned bytes with the query's signed ones. The compiler's own function
  // for the instruction makes it carry the 24 sums to and fro, which takes twice the time.
  static Bytes plus_products(Bytes sum, Bytes key, const std::int32_t* query) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(key), "m"(*query));
    return sum;
  }

  static constexpr float kMargin = 1.001F;           // for the rounding of the bound itself
  static constexpr std::int64_t kMoreRoundings = 8;  // of scales, of e and of the result, beside a dot's own

  struct Extremes {
    float length = 0, error = 0;
    void join(float other_length, float other_error) {
      length = larger_or_nan(length, other_length);
      error = larger_or_nan(error, other_error);
    }
  };

  // The largest number becomes 127.
  float scale_of(const float* x) const {
    float most = 0;
    for (std::int64_t d = 0; d < width_; ++d) most = std::max(most, std::abs(x[d]));
    return most / 127.0F;
  }

  // The nearest byte; what is lost goes to `squares`. A scale of 0 or of no use (all numbers tiny) loses everything.
  static std::int32_t byte_of(float x, float scale, float& squares) {
    const float scaled = x / scale;
    const auto byte = static_cast<std::int32_t>(std::nearbyint(std::abs(scaled) <= 127.5F ? scaled : 0.0F));
    const float lost = x - scale * static_cast<float>(byte);
    squares += lost * lost;
    return byte;
  }

  static void put(std::int32_t& word, std::int64_t place, std::int32_t byte) {
    word =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | (static_cast<std::uint32_t>(byte) & 0xFFU) << (8 * place));
  }

  // Tile t of all sequences' tiles.
  void pack(const float* k, std::int64_t t) {
    const std::int64_t first = t % tiles_ * kTileKeys, count = std::min(kTileKeys, length_ - first);
    const float* const from = k + (t / tiles_ * length_ + first) * width_;
    std::int32_t* const words = words_.data<std::int32_t>() + t * quads_ * kTileKeys;
    float* const scales = scales_.data<float>() + t * kTileKeys;
    std::fill_n(words, quads_ * kTileKeys, 0);
    std::fill_n(scales, kTileKeys, 0.0F);
    for (std::int64_t j = 0; j < count; ++j) {
      const float* const key = from + j * width_;
      float squares = 0;
      scales[j] = scale_of(key);
      for (std::int64_t d = 0; d < width_; ++d) {
        put(words[d / 4 * kTileKeys + j], d % 4, byte_of(key[d], scales[j], squares) + 128);
      }
      extremes_[static_cast<std::size_t>(t)].join(length_of(key, width_), std::sqrt(squares));
    }
  }

  std::int64_t length_, width_, quads_, tiles_;
  Tensor words_, scales_;
  std::vector<Extremes> extremes_;  // by tile
  Extremes largest_;
};

}  // namespace gau::cpu

#endif
