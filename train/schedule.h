// Learning rate and scale of cosine attention as pure functions of the step: resuming needs no state of a scheduler.
#pragma once

#include <cstdint>

#include "layers/model_config.h"
#include "train/config.h"

namespace gau {

/// A warm-up given in steps, or below 1 as a fraction of all `steps`, in whole steps: 0 ≤ result < steps.
std::int64_t warmup_in_steps(double warmup, std::int64_t steps);

/// Learning rate of optimizer step `step`, counted from 0; above 0 on each of 0 … steps-1, and as at the last step beyond.
///
/// Warm-up: step k of W has (k + 1) / W of the peak. After it, with r steps of R = steps - W left (this one included):
/// linear r / R, so that 0 would be reached one step after the last; cosine (1 - cos(π r / R)) / 2; constant 1. The piecewise
/// schedule interpolates linearly between its points, keeps the last factor after them, and is multiplied by the warm-up.
double learning_rate(const OptimConfig& optim, std::int64_t step);

/// s of cosine attention at a step of `steps`: from 4 linearly to attention.scale during attention.scale_warmup, then
/// attention.scale. 0 ("leave it alone") when attention is not cosine or learns s.
double cosine_scale(const AttentionConfig& attention, std::int64_t steps, std::int64_t step);

}  // namespace gau
