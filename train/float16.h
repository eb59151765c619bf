// float to and from IEEE binary16 (5 bits of exponent, 10 of fraction), rounded to nearest, ties to even. Widening is exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace gau {

inline float from_float16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU, fraction = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(fraction), -24)));
}

/// A value that rounds beyond the largest (65504) becomes infinity.
inline std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the fraction counts units of 2^-24, which are what a float next to 0.5 counts: adding 0.5 rounds to them.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  // The exponent's bias falls from 127 to 15; the carry of rounding runs into the exponent as it should.
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

}  // namespace gau
