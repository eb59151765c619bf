// One layer of GAU-α: a gated attention unit with one head, residual connection and RMS norm after it.
//
//   [u | v | z] = swish(x W_iᵀ)          u, v: E wide, z: D wide
//   q = γ_q ⊙ z,  k = γ_k ⊙ z            cosine: both divided by their norms; keynorm: k alone
//   A = softmax(scale · R q · (R k)ᵀ + bias, over visible keys)
//   x' = rms(x + dropout((u ⊙ (A v)) W_oᵀ))
#pragma once

#include <cstdint>
#include <string>

#include "autograd/variable.h"
#include "framework/attention_plan.h"
#include "framework/backend.h"
#include "layers/context.h"
#include "layers/flat_parameters.h"
#include "layers/model_config.h"

namespace gau {

/// Which rows of a layer's output are wanted: flat rows, and the same grouped by sequence and padded to one width, as attention
/// takes them.
struct QueryRows {
  Tensor flat;       ///< i32 [M]: b · L + i ascending, -1 padding; undefined: all rows
  Tensor grouped;    ///< i32 [B · R]: the flat row b · L + i shown at (b, r), -1 none
  Tensor positions;  ///< i32 [B, R]: position i of that row in its sequence, -1 none
  Tensor ungroup;    ///< i32 [M]: where row m of `flat` lies in [B · R], -1 for padding
  bool all() const { return !flat.defined(); }
};
/// Groups flat rows of a batch [B, L]; R is the largest count of a sequence, rounded up to a multiple of 8.
QueryRows group_rows(const Tensor& flat, std::int64_t batch, std::int64_t length);

class GauLayer {
 public:
  /// Adds this layer's parameters; bind() finds them again once they are allocated.
  static void add_parameters(FlatParameters& parameters, const ModelConfig& config, std::int64_t index);
  GauLayer(const FlatParameters& parameters, const ModelConfig& config, std::int64_t index);

  /// x [B, L, H], key_mask i32 [B, L] or undefined -> [B, L, H], or [M, H] for given rows.
  Variable forward(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                   const QueryRows& rows) const;
  /// What attention works on in forward(), at the given rows; records no gradients.
  AttentionInputs attention_inputs(const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                                   const QueryRows& rows) const;

 private:
  struct Projected;
  Projected project(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                    const QueryRows& rows) const;
  /// Queries or keys from z [B, R, D], one for each rotation: fused, unless learned numbers or the context ask for small ops.
  static std::vector<Variable> head(const Context& context, const Variable& z, const Variable& gamma,
                                    const std::vector<Variable>& scales, const HeadTransform& how);
  std::vector<Variable> learned_scales() const;
  /// plan.row_factor of the wanted rows.
  static Tensor row_factors(const AttentionPlan& plan, const QueryRows& rows);

  ModelConfig config_;
  std::int64_t index_;
  Variable input_;    // [2E + D, H]: rows u, v, z
  Variable output_;   // [H, E]
  Variable gamma_q_;  // [D]
  Variable gamma_k_;  // [D]
  Variable scale_;    // [1]: learned s, or undefined
  Variable ssmax_;    // [1]: learned s of ssmax, or undefined
};

}  // namespace gau
