// AdamW and LAMB over the flat buffers of all parameters.
//
//   AdamW (Loshchilov and Hutter, 2019): m̂, v̂ bias-corrected;  w -= lr · (m̂ / (√v̂ + eps) + decay · w)
//   LAMB as GAU-α was trained with:      u = m / (√v + eps) + decay · w, without bias correction;
//                                        w -= lr · (‖w‖ / ‖u‖) · u for each parameter tensor, ratio 1 where a norm is 0
//
// Decay applies to every parameter, γ and embeddings included. The gradient handed in is that of a sum over tokens; one factor,
// 1 / tokens · clip, scales it here, which keeps the result the same however the sum was split.
#pragma once

#include <cstdint>

#include "framework/backend.h"
#include "framework/tensor.h"
#include "layers/flat_parameters.h"
#include "train/config.h"

namespace gau {

class Optimizer {
 public:
  /// `parameters` must outlive the optimizer. Moments start at 0.
  Optimizer(const OptimConfig& optim, FlatParameters& parameters);

  /// One update of all parameters from their gradients times `gradient_scale`.
  void apply(double learning_rate, double gradient_scale);

  /// Updates applied so far, which the bias correction counts.
  std::int64_t updates() const { return updates_; }
  /// First and second moments, laid out as the parameters, in their type. Shared, not copied: for checkpoints.
  const Tensor& first() const { return first_; }
  const Tensor& second() const { return second_; }
  /// Takes over the state of a checkpoint; throws Error(kData) when sizes or types differ.
  void restore(std::int64_t updates, const Tensor& first, const Tensor& second);

 private:
  void apply_lamb(const AdamStep& step);

  OptimConfig optim_;
  FlatParameters& parameters_;
  std::int64_t updates_ = 0;
  Tensor first_;
  Tensor second_;
  Tensor update_;  // of LAMB
};

/// Norm of all gradients: squares are summed by tensor, then over tensors in their order.
double gradient_norm(const FlatParameters& parameters);

/// min(1, clip / (norm + 1e-6)), or 1 when clip is 0.
double clip_factor(double norm, double clip);

}  // namespace gau
