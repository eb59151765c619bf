// Checks that the kernels' front doors share. Every failure is one line: the kernel, the operands with shape and type.
#pragma once

#include <cstdint>
#include <string>

#include "framework/error.h"
#include "framework/tensor.h"

namespace gau::kernels {

/// "logits f32 [8, 12000]", or "logits undefined".
inline std::string describe(const char* name, const Tensor& tensor) {
  if (!tensor.defined()) return fmt::format("{} undefined", name);
  return fmt::format("{} {} {}", name, name_of(tensor.dtype()), tensor.shape().str());
}

/// An operand with the name that messages give it.
struct Operand {
  const char* name;
  const Tensor& tensor;
};

[[noreturn]] inline void mismatch(const char* kernel, const char* what, const Operand& a, const Operand& b) {
  fail(ExitCode::kData, "kernel {}: {}: {} and {}", kernel, what, describe(a.name, a.tensor), describe(b.name, b.tensor));
}

inline void require_defined(const char* kernel, const Operand& a) {
  check(a.tensor.defined(), ExitCode::kData, "kernel {}: {} is undefined", kernel, a.name);
}

inline void require_type(const char* kernel, const Operand& a, DType dtype) {
  require_defined(kernel, a);
  check(a.tensor.dtype() == dtype, ExitCode::kData, "kernel {}: {} should be {}", kernel, describe(a.name, a.tensor),
        name_of(dtype));
}

inline void require_real(const char* kernel, const Operand& a) {
  require_defined(kernel, a);
  check(a.tensor.dtype() == DType::kF32 || a.tensor.dtype() == DType::kF64, ExitCode::kData,
        "kernel {}: {} should be f32 or f64", kernel, describe(a.name, a.tensor));
}

/// b has a's number of elements and type.
inline void require_same_size(const char* kernel, const Operand& a, const Operand& b) {
  require_type(kernel, b, a.tensor.dtype());
  if (a.tensor.size() != b.tensor.size()) mismatch(kernel, "sizes differ", a, b);
}

/// b has a's rows, columns and type.
inline void require_same_matrix(const char* kernel, const Operand& a, const Operand& b) {
  require_same_size(kernel, a, b);
  if (a.tensor.columns() != b.tensor.columns()) mismatch(kernel, "columns differ", a, b);
}

/// b is f32 or f64 as a, with a's columns.
inline void require_same_columns(const char* kernel, const Operand& a, const Operand& b) {
  require_type(kernel, b, a.tensor.dtype());
  if (a.tensor.columns() != b.tensor.columns()) mismatch(kernel, "columns differ", a, b);
}

/// One value a row of x, in x's type.
inline void require_row_values(const char* kernel, const Operand& x, const Operand& values) {
  require_type(kernel, values, x.tensor.dtype());
  if (values.tensor.size() != x.tensor.rows()) mismatch(kernel, "rows differ", x, values);
}

/// An i32 tensor whose values lie in [lowest, limit).
inline void require_indices(const char* kernel, const Operand& indices, std::int64_t lowest, std::int64_t limit) {
  require_type(kernel, indices, DType::kI32);
  const auto values = indices.tensor.span<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= lowest && values[i] < limit, ExitCode::kData, "kernel {}: {}[{}] = {} is not in [{}, {})", kernel,
          indices.name, i, values[i], lowest, limit);
  }
}

}  // namespace gau::kernels
