// The one backend of this build.
#include "framework/cpu/cpu_backend.h"

#include "framework/cpu/gemm.h"

namespace gau {

bool CpuBackend::has_native_bf16() const { return cpu::has_native_bf16(); }

Backend& backend() {
  static CpuBackend instance;
  return instance;
}

}  // namespace gau
