// The work of a training step in matrix products, for figures of speed and forecasts.
#pragma once

#include <cstdint>

#include "layers/model_config.h"

namespace gau {

/// Floating-point operations of the products, forward and backward, for `tokens` in sequences of `length`, `masked` of them in
/// the loss.
double step_operations(const ModelConfig& model, double tokens, std::int64_t length, double masked);

}  // namespace gau
