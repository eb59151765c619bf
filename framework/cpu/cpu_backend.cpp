// The one backend of this build.
#include "framework/cpu/cpu_backend.h"

namespace gau {

Backend& backend() {
  static CpuBackend instance;
  return instance;
}

}  // namespace gau
