// Stateless randomness: Philox4x32-10 (Salmon et al., 2011) as a pure function of a key and a counter.
//
// Nothing here holds a state. Masks, dropout, shuffles and initial weights are functions of what they belong to (seed, step,
// sample, row, column), so they do not depend on ranks, threads, batch size or how often a run was resumed.
#pragma once

#include <array>
#include <cstdint>

#include "framework/tensor.h"

namespace gau {

/// Philox4x32-10's multipliers, key increments and number of rounds.
struct PhiloxConstants {
  static constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  static constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  static constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  static constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  static constexpr int kRounds = 10;
};

/// 128 random bits for (key, counter).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key);

/// What a random number is for. Each purpose draws from its own stream.
enum class Site : std::uint32_t {
  kInitializer = 1,
  kShuffle = 2,
  kMask = 3,
  kEmbeddingDropout = 4,
  kAttentionDropout = 5,
  kHiddenDropout = 6,
  kHeadDropout = 7,
  kSynthetic = 8,
  kBootstrap = 9,
  kEvaluation = 10,
  kPositions = 11,
};

/// One stream: everything in it is a function of (seed, step, site, layer) and a counter of three words.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  Site site = Site::kInitializer;
  std::uint32_t layer = 0;

  /// The 64-bit Philox key: seed and step mixed by a bijective hash of each.
  std::uint64_t key() const;
  /// Fourth word of every counter: site in the high 8 bits, layer in the low 24.
  std::uint32_t stream() const;
  /// 128 bits at (a, b, c); site and layer fill the fourth word of the counter.
  std::array<std::uint32_t, 4> draw(std::uint32_t a, std::uint32_t b, std::uint32_t c) const;
  /// Uniform in [0, 1) with 53 bits.
  double uniform(std::uint32_t a, std::uint32_t b, std::uint32_t c) const;
  /// Uniform integer in [0, n), unbiased to 2^-32 · n; n ≥ 1.
  std::uint64_t below(std::uint64_t n, std::uint32_t a, std::uint32_t b, std::uint32_t c) const;
};

/// Which elements of a tensor dropout zeroes: element (row, column) of global sample s is dropped when 16 bits drawn at
/// (s, row, column / 8) fall below rate · 2^16; the kept ones are divided by the probability of being kept.
struct DropoutSpec {
  double rate = 0;                 ///< 0 ≤ rate < 1; 0 does nothing
  RandomKey key;                   ///< seed, step, site, layer
  std::uint64_t first_sample = 0;  ///< global index of the batch's first sequence
  std::int64_t length = 1;         ///< rows of a sequence: flat row r is (sample first_sample + r / length, row r % length)
  Tensor rows;                     ///< i32 [M]: the flat row of each row of the tensor; undefined: row r is r

  bool active() const { return rate > 0; }
};

/// A keyed permutation of {0, …, n-1} (a Feistel network with cycle walking): index -> its image, without any table.
std::uint64_t permute(std::uint64_t index, std::uint64_t n, const RandomKey& key);

}  // namespace gau
