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
#include "layers/query_rows.h"

namespace gau {

class GauLayer {
 public:
  /// Adds this layer's parameters; bind() finds them again once they are allocated.
  static void add_parameters(FlatParameters& parameters, const ModelConfig& config, std::int64_t index);
  GauLayer(const FlatParameters& parameters, const ModelConfig& config, std::int64_t index);

  /// x [B, L, H], key_mask i32 [B, L] or undefined -> [B, L, H], or [M, H] for given rows. Where ranks share sequences x has
  /// the rows of this rank alone.
  Variable forward(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                   const QueryRows& rows) const;
  /// What attention works on in forward(), at the given rows, with the keys of whole sequences; where ranks share these,
  /// without values, which would cost each rank the memory of all. Records no gradients.
  AttentionInputs attention_inputs(const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                                   const QueryRows& rows) const;

 private:
  struct Projected;
  Projected project(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                    const QueryRows& rows) const;
  /// The wanted rows of x, as listed and as attention takes them.
  Variable pick(const Variable& x, const QueryRows& rows) const;
  Variable pick_grouped(const Variable& x, const QueryRows& rows) const;
  Variable attend(const Context& context, const ops::AttentionVariables& in, const AttentionPlan& plan,
                  const DropoutSpec& dropout, const QueryRows& rows) const;
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
