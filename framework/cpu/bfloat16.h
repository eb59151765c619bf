// float and bfloat16: the upper half of a float, rounded to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "framework/dtype.h"

namespace gau::cpu {

/// The carry of rounding runs into the exponent as it should. A NaN keeps its upper half, made quiet.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return BFloat16{static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : rounded) >> 16)};
}

inline float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

}  // namespace gau::cpu
