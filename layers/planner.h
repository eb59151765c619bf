// Planner: turns a method into the AttentionPlan of each layer for a batch. The one place that knows what a method's name means.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "framework/attention_plan.h"
#include "layers/method.h"
#include "layers/model_config.h"

namespace gau {

/// What of a batch decides a plan.
struct BatchLayout {
  std::int64_t batch = 1;   ///< B
  std::int64_t length = 0;  ///< L, padding included
  Tensor key_mask;          ///< i32 [B, L] or undefined (all tokens)
  Tensor positions;         ///< f64 [B, L]: positions of each sample's own (PoSE, randomised), or undefined: 0, 1, 2, …
  std::int64_t nominal_length = 0;  ///< length of the context that PI, NTK and YaRN stretch to; 0: L
};

class Planner {
 public:
  /// `method` is completed by the model's own (resolve()). Tables are made in `dtype`.
  Planner(const ModelConfig& model, const Method& method, DType dtype);

  const Method& method() const { return method_; }
  /// The plan of layer `layer` (0-based). `cosine_scale` replaces s when it is above 0 (a warm-up of s). When the layer's s is
  /// learned, row_factor leaves s out.
  AttentionPlan plan(std::int64_t layer, const BatchLayout& layout, double cosine_scale = 0);
  /// Valid keys that each row sees, i64 values in a [B, L] f64 tensor, under `plan`'s mask.
  static Tensor visible_keys(const AttentionPlan& plan, const BatchLayout& layout);

 private:
  struct Tables;
  RotaryTable table(const std::vector<double>& positions, const std::vector<double>& frequencies, double magnitude) const;

  ModelConfig model_;
  Method method_;
  DType dtype_;
};

}  // namespace gau
