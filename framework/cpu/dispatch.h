// From a tensor's type to a template's argument.
#pragma once

#include <cstdint>

#include "framework/dtype.h"
#include "framework/error.h"

namespace gau::cpu {

/// body(T()) with T = float or double; any other type throws Error(kData) with the kernel's name.
template <class Body>
void dispatch(DType dtype, const char* kernel, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float());
    case DType::kF64:
      return body(double());
    default:
      fail(ExitCode::kData, "kernel {}: works on f32 and f64, not on {}", kernel, name_of(dtype));
  }
}

/// Elements of a block of a parallel loop over elements, and rows of one over rows: large enough to pay for a hand-over
/// (microseconds), small enough to stay in the second-level cache.
constexpr std::int64_t kBlockElements = 16384;
constexpr std::int64_t rows_per_block(std::int64_t columns) {
  return columns >= kBlockElements ? 1 : kBlockElements / (columns < 1 ? 1 : columns);
}

}  // namespace gau::cpu
