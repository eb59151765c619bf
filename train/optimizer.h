// AdamW and LAMB over the flat buffers of all parameters.
//
//   AdamW (Loshchilov and Hutter, 2019): m̂, v̂ bias-corrected;  w -= lr · (m̂ / (√v̂ + eps) + decay · w)
//   LAMB as GAU-α was trained with:      u = m / (√v + eps) + decay · w, without bias correction;
//                                        w -= lr · (‖w‖ / ‖u‖) · u for each parameter tensor, ratio 1 where a norm is 0
//
// Decay applies to every parameter, γ and embeddings included. The gradient handed in is that of a sum over tokens; one factor,
// 1 / tokens · clip, scales it here, which keeps the result the same however the sum was split.
//
// Where ranks share the moments (ZeRO-1), each updates what it owns and the results are exchanged: the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/backend.h"
#include "framework/tensor.h"
#include "layers/flat_parameters.h"
#include "train/bucket_plan.h"
#include "train/config.h"

namespace gau {

class Optimizer {
 public:
  /// Makes everybody's what each rank has computed in its own elements of a flat buffer.
  using Share = std::function<void(Tensor flat)>;

  /// `parameters` must outlive the optimizer. Moments start at 0. `owned`: the elements whose moments are kept here; empty: all
  /// of them.
  Optimizer(const OptimConfig& optim, FlatParameters& parameters, std::vector<Range> owned = {});

  /// One update of all parameters from their gradients times `gradient_scale`; `share` is needed unless all elements are owned.
  void apply(double learning_rate, double gradient_scale, const Share& share = {});

  /// Updates applied so far, which the bias correction counts.
  std::int64_t updates() const { return updates_; }
  /// First and second moments of the owned elements, range after range, in the parameters' type; of all parameters, laid out
  /// as these, unless ranks share them. Shared, not copied: for checkpoints.
  const Tensor& first() const { return first_; }
  const Tensor& second() const { return second_; }
  const std::vector<Range>& owned() const { return owned_; }
  /// Takes over the state of a checkpoint, of all parameters or of the owned ones; throws Error(kData) when sizes or types
  /// differ.
  void restore(std::int64_t updates, const Tensor& first, const Tensor& second);

 private:
  /// update(elements, first, second) for every owned range, with its moments.
  void for_owned(const std::function<void(Range, Tensor, Tensor)>& update);
  void apply_adamw(const AdamStep& step, const Share& share);
  void apply_lamb(const AdamStep& step, const Share& share);

  OptimConfig optim_;
  FlatParameters& parameters_;
  std::vector<Range> owned_;
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
