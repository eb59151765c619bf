// Sixteen Philox counters at a time, one a lane: they differ in the third word alone (column / 8).
//
// The 32-bit words live in 64-bit lanes, where the products of a round are whole and need no shuffling; on AVX-512 this runs
// at a fraction of a nanosecond a draw.
#include "framework/cpu/dropout_row.h"

#include <bit>
#include <cstring>

namespace gau::cpu {
namespace {

constexpr std::size_t kLanes = kDropoutChunk / 8;
constexpr std::uint64_t kLowHalf = 0xFFFFFFFF;

}  // namespace

void dropout_bits(std::uint64_t key, std::uint32_t stream, std::uint32_t sample, std::uint32_t row, std::int64_t chunk,
                  std::uint16_t* bits) {
  static_assert(std::endian::native == std::endian::little, "the draws of a word are read as two halves, the low one first");
  std::array<std::uint64_t, kLanes> w0, w1, w2, w3;
  w0.fill(sample);
  w1.fill(row);
  w3.fill(stream);
  for (std::size_t lane = 0; lane < kLanes; ++lane) w2[lane] = (static_cast<std::uint64_t>(chunk) * kLanes + lane) & kLowHalf;
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < PhiloxConstants::kRounds; ++round) {
#pragma omp simd
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t product0 = PhiloxConstants::kMultiplier0 * w0[lane];
      const std::uint64_t product1 = PhiloxConstants::kMultiplier1 * w2[lane];
      w0[lane] = (product1 >> 32) ^ w1[lane] ^ key0;
      w1[lane] = product1 & kLowHalf;
      w2[lane] = (product0 >> 32) ^ w3[lane] ^ key1;
      w3[lane] = product0 & kLowHalf;
    }
    key0 += PhiloxConstants::kWeyl0;
    key1 += PhiloxConstants::kWeyl1;
  }
  std::array<std::uint64_t, 2 * kLanes> pairs;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    pairs[2 * lane] = w0[lane] | (w1[lane] << 32);
    pairs[2 * lane + 1] = w2[lane] | (w3[lane] << 32);
  }
  std::memcpy(bits, pairs.data(), sizeof(pairs));
}

}  // namespace gau::cpu
