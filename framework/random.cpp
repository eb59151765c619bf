// Philox4x32-10 and what is drawn from it.
//
// A round multiplies two counter words by constants and mixes the high halves with the other two and the key; the key moves on
// by a Weyl constant a round. Ten rounds pass every known statistical test (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", 2011).
#include "framework/random.h"

#include <algorithm>
#include <bit>

#include "framework/error.h"

namespace gau {
namespace {

// A bijection of 64 bits in which every output bit depends on every input bit: two rounds of xor-shift and odd multiplier.
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t low_pair(const std::array<std::uint32_t, 4>& words) { return (std::uint64_t{words[1]} << 32) | words[0]; }

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < PhiloxConstants::kRounds; ++round) {
    const std::uint64_t product0 = PhiloxConstants::kMultiplier0 * counter[0];
    const std::uint64_t product1 = PhiloxConstants::kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += PhiloxConstants::kWeyl0;
    key1 += PhiloxConstants::kWeyl1;
  }
  return counter;
}

std::uint64_t RandomKey::key() const {
  // The additions keep seed 0 and step 0 away from the fixed point 0 of scramble().
  return scramble(scramble(seed + 0x9E3779B97F4A7C15) + (step + 1) * 0xD1B54A32D192ED03);
}

std::uint32_t RandomKey::stream() const { return (static_cast<std::uint32_t>(site) << 24) | (layer & 0xFFFFFFU); }

std::array<std::uint32_t, 4> RandomKey::draw(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
  return philox({a, b, c, stream()}, key());
}

double RandomKey::uniform(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
  return static_cast<double>(low_pair(draw(a, b, c)) >> 11) * 0x1p-53;
}

std::uint64_t RandomKey::below(std::uint64_t n, std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
  check(n >= 1, ExitCode::kData, "a random integer below 0 was asked for");
  // The high half of bits · n: each value has floor or ceil of 2^64 / n preimages.
  const std::uint64_t bits = low_pair(draw(a, b, c));
  const std::uint64_t low = (bits & 0xFFFFFFFF) * (n & 0xFFFFFFFF);
  const std::uint64_t mid1 = (bits >> 32) * (n & 0xFFFFFFFF) + (low >> 32);
  const std::uint64_t mid2 = (bits & 0xFFFFFFFF) * (n >> 32) + (mid1 & 0xFFFFFFFF);
  return (bits >> 32) * (n >> 32) + (mid1 >> 32) + (mid2 >> 32);
}

std::uint64_t permute(std::uint64_t index, std::uint64_t n, const RandomKey& key) {
  check(index < n, ExitCode::kData, "index {} of a permutation of {} items", index, n);
  // A balanced Feistel network permutes the smallest even power of two that holds n; a walk along its cycle comes back into
  // {0, …, n-1} after fewer than four steps on average, and is a permutation there again.
  constexpr std::uint32_t kFeistelRounds = 6;
  const int bits = std::max(static_cast<int>(std::bit_width(n - 1)), 2);
  const int half = (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const std::uint64_t round_key = key.key();
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (std::uint32_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t mixed =
          left ^ (philox({static_cast<std::uint32_t>(right), round, 0, key.stream()}, round_key)[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half) | right;
  } while (value >= n);
  return value;
}

}  // namespace gau
