// Names of element types, as the configuration and the command line spell them.
#include "framework/dtype.h"

#include "framework/error.h"

namespace gau {

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail(ExitCode::kUsage, "unknown element type '{}'; known: f32, f64, bf16", name);
}

}  // namespace gau
