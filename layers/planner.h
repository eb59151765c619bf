// Planner: turns a method into the AttentionPlan of each layer for a batch. The one place that knows what a method's name
// means.
#pragma once

#include <array>
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
  /// AttentionPlan::skip of the plans made from now on.
  void set_skip(double skip) { skip_ = skip; }
  /// The plan of layer `layer` (0-based). `cosine_scale` replaces s when it is above 0 (a warm-up of s). When the layer's s is
  /// learned, row_factor leaves s out; ssmax gives ln l, without the learned s of the layer. Throws Error(kUsage) for what the
  /// method cannot do with this batch: positions of its own with far regions, `calibrated` at a length it was not fitted for.
  AttentionPlan plan(std::int64_t layer, const BatchLayout& layout, double cosine_scale = 0);
  /// Valid keys that each row sees under `plan`'s mask: whole numbers in an f64 tensor [B, L].
  static Tensor visible_keys(const AttentionPlan& plan, const BatchLayout& layout);

 private:
  const AttentionPlan& geometry(std::int64_t layer, const BatchLayout& layout);
  /// The rotation at the samples' own positions; the last one is kept, since all layers of a step ask for the same.
  const RotaryTable& own_table(std::int64_t layer, const BatchLayout& layout);
  double base_scale(double cosine_scale) const;
  double calibrated_factor(std::int64_t layer, std::int64_t nominal) const;
  /// The factor of each row on top of the base, in double, [B · L].
  std::vector<double> law_factors(std::int64_t layer, const BatchLayout& layout, const AttentionPlan& plan);

  ModelConfig model_;
  Method method_;
  DType dtype_;
  double skip_;
  std::map<std::array<std::int64_t, 3>, AttentionPlan> geometries_;  // by (windowed, length, nominal)
  std::vector<double> own_positions_;
  std::int64_t own_nominal_ = 0;
  RotaryTable own_table_;
  std::vector<double> temperatures_;  // by number of keys; NaN: not computed yet
};

}  // namespace gau
