// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gau {

enum class DType : std::uint8_t { kF32, kF64, kBF16, kI32 };

/// bfloat16 as storage only: arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits;
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 8;
    case DType::kBF16: return 2;
    case DType::kF32:
    case DType::kI32: return 4;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF64: return "f64";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
  }
  return "?";
}

/// "f32", "f64", "bf16"; anything else throws Error(kUsage).
DType parse_dtype(const std::string& name);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};

}  // namespace gau
