// The part of an AttentionPlan that a method's position term decides: who sees whom, and by which rotation or bias. It depends
// on lengths alone, not on a batch's padding.
#pragma once

#include <cstdint>

#include "framework/attention_plan.h"
#include "layers/method.h"
#include "layers/model_config.h"
#include "layers/rotary.h"

namespace gau {

/// What a geometry is made for. `method` is resolved.
struct GeometryRequest {
  const ModelConfig& model;
  const Method& method;
  std::int64_t layer = 0;
  std::int64_t length = 0;   ///< L: rows of the tables
  std::int64_t nominal = 0;  ///< length of the context, without padding: what PI, NTK, YaRN and Leaky-ReRoPE stretch to
  DType dtype = DType::kF32;
};

/// The plan without row_factor and logit_bound. Far regions that no visible pair of this length reaches are left out.
AttentionPlan attention_geometry(const GeometryRequest& request);
/// The rotary frequencies of the method at this length.
Spectrum method_spectrum(const GeometryRequest& request);
/// Whether this layer is one of HWFA's windowed ones, where the law is not applied: a window keeps the number of keys.
bool is_windowed_layer(const ModelConfig& model, const Method& method, std::int64_t layer);

}  // namespace gau
