#include "train/precision.h"

#include "framework/log.h"

namespace gau {

Precision::Precision(DType dtype) : scope_(backend(), dtype == DType::kBF16 ? DType::kBF16 : DType::kF32) {
  if (dtype != DType::kBF16) return;
  if (backend().has_native_bf16()) {
    log::info("bf16: products run in it natively; parameters, gradients, softmax, norms and loss stay in f32");
  } else {
    log::warn("bf16: this machine has no such products; the same numbers come from f32 ones, at their speed: use dtype f32");
  }
}

}  // namespace gau
