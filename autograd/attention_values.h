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

inline AttentionGradients gradients_like(const AttentionInputs& in) {
  const auto like = [](const Tensor& x) { return x.defined() ? Tensor::empty(x.shape(), x.dtype()) : Tensor(); };
  return {like(in.q_near), like(in.k_near), like(in.q_left), like(in.k_left), like(in.q_right), like(in.k_right), like(in.v)};
}

}  // namespace gau::ops
