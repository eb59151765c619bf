// A tensor as the bytes of a message.
#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor.h"

namespace gau {

inline std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.bytes()};
}

/// By value: a tensor's copies share its storage.
inline std::span<std::byte> writable_bytes_of(Tensor tensor) { return {static_cast<std::byte*>(tensor.raw()), tensor.bytes()}; }

}  // namespace gau
