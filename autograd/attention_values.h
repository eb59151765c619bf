// The tensors behind attention's variables, and room for their gradients.
#pragma once

#include "autograd/ops.h"
#include "framework/backend.h"

namespace gau::ops {

/// What absent variables stand for stays undefined.
inline AttentionInputs values_of(const AttentionVariables& in) {
  const auto value = [](const Variable& x) { return x.defined() ? x.value() : Tensor(); };
  return {value(in.q_near),  value(in.k_near), value(in.q_left), value(in.k_left), value(in.q_right),
          value(in.k_right), value(in.v),      in.key_mask,      in.rows};
}

/// Undefined where x is.
inline Tensor empty_like(const Tensor& x) { return x.defined() ? Tensor::empty(x.shape(), x.dtype()) : Tensor(); }

inline AttentionGradients gradients_like(const AttentionInputs& in) {
  return {empty_like(in.q_near),  empty_like(in.k_near),  empty_like(in.q_left), empty_like(in.k_left),
          empty_like(in.q_right), empty_like(in.k_right), empty_like(in.v)};
}

}  // namespace gau::ops
