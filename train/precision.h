// What a dtype setting means: f32 and f64 for everything, or bf16 for the operands of products alone.
#pragma once

#include "framework/backend.h"
#include "framework/dtype.h"

namespace gau {

/// The type of parameters, activations, gradients and moments. bf16 keeps float32 masters, gradients, softmax, norms, angles
/// and loss, and rounds only what enters matrix products.
inline DType storage_type(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

/// The backend's products while training or evaluating under a dtype setting. Says once when bf16 is emulated.
class Precision {
 public:
  explicit Precision(DType dtype);

 private:
  ProductTypeScope scope_;
};

}  // namespace gau
