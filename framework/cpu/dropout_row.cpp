// Sixteen Philox counters at a time, one a lane: they differ in the third word alone (column / 8).
#include "framework/cpu/dropout_row.h"

namespace gau::cpu {
namespace {

constexpr int kLanes = static_cast<int>(kDropoutChunk / 8);
using Words = std::array<std::uint32_t, kLanes>;

}  // namespace

void dropout_bits(std::uint64_t key, std::uint32_t stream, std::uint32_t sample, std::uint32_t row, std::int64_t chunk,
                  std::uint16_t* bits) {
  Words w0, w1, w2, w3;
  for (int i = 0; i < kLanes; ++i) {
    const auto lane = static_cast<std::size_t>(i);
    w0[lane] = sample;
    w1[lane] = row;
    w2[lane] = static_cast<std::uint32_t>(chunk * kLanes + i);
    w3[lane] = stream;
  }
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < PhiloxConstants::kRounds; ++round) {
#pragma omp simd
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t product0 = PhiloxConstants::kMultiplier0 * w0[lane];
      const std::uint64_t product1 = PhiloxConstants::kMultiplier1 * w2[lane];
      w0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ w1[lane] ^ key0;
      w1[lane] = static_cast<std::uint32_t>(product1);
      w2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ w3[lane] ^ key1;
      w3[lane] = static_cast<std::uint32_t>(product0);
    }
    key0 += PhiloxConstants::kWeyl0;
    key1 += PhiloxConstants::kWeyl1;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::uint16_t* const eight = bits + 8 * lane;
    const std::uint32_t words[] = {w0[lane], w1[lane], w2[lane], w3[lane]};
    for (int i = 0; i < 4; ++i) {
      eight[2 * i] = static_cast<std::uint16_t>(words[i]);
      eight[2 * i + 1] = static_cast<std::uint16_t>(words[i] >> 16);
    }
  }
}

}  // namespace gau::cpu
