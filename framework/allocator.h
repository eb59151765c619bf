// Caching allocator of tensor memory.
//
// Freed blocks are kept by size and handed out again, since the first touch of fresh pages costs more than most passes over
// them. Blocks are 64-byte aligned. Debug builds fill every block with NaN bytes when it is handed out, so that a kernel
// which reads what it never wrote shows up in the result. Thread-safe.
#pragma once

#include <cstddef>

namespace gau::allocator {

/// At least `bytes` bytes; throws Error(kIo) with the size when the machine has no more.
void* allocate(std::size_t bytes);
void release(void* pointer, std::size_t bytes) noexcept;

/// Bytes now handed out, and the largest that has been since the last reset_peak().
std::size_t in_use();
std::size_t peak();
void reset_peak();

/// How often memory was asked of the system; constant in a steady state.
std::size_t system_allocations();

/// Gives cached blocks back to the system.
void trim();

}  // namespace gau::allocator
