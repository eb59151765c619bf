// How fast this machine is, measured in a fraction of a second: what forecasts and metrics stand beside.
#pragma once

#include "framework/dtype.h"

namespace gau {

/// Floating-point operations per second of a bare product that fills the caches, with the threads of this process: the best of
/// five.
double measured_product_rate(DType dtype);

/// Bytes per second, read and written, of a pass over buffers larger than the caches, with the threads of this process.
double measured_memory_rate();

}  // namespace gau
