// The differentiable operations of GAU-α. Each is one short function: value, then the closure that computes gradients.
//
// Tensors of any rank are seen as rows × columns, the last dimension being the columns. Shapes are checked by the kernels;
// errors name the kernel and both shapes. Fused ops have their composed form, made of small ones, in autograd/composed.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "autograd/variable.h"
#include "framework/attention_plan.h"
#include "framework/random.h"

namespace gau::ops {

/// x [..., K] · wᵀ with w [N, K] -> [..., N].
Variable linear(const Variable& x, const Variable& w);
/// a [N, M, K] · b [N, K, P] -> [N, M, P]; with `transpose_b`, b is [N, P, K].
Variable batched_matmul(const Variable& a, const Variable& b, bool transpose_b);
/// The same elements under another shape.
Variable reshape(const Variable& x, const Shape& shape);
/// Rows [begin, end) of a matrix.
Variable slice_rows(const Variable& x, std::int64_t begin, std::int64_t end);
/// out[m, :] = x[rows[m], :]; rows i32, distinct; -1 gives zeros. The result is [M, columns], or `shape` with as many rows.
Variable gather_rows(const Variable& x, const Tensor& rows, const Shape& shape = {});

Variable add(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
/// Each column times its factor: x [..., C], gamma [C].
Variable scale_columns(const Variable& x, const Variable& gamma);
/// Each row times its constant factor [rows]; an undefined factor gives x.
Variable scale_rows(const Variable& x, const Tensor& factor);
/// All of x times one learned number s [1].
Variable scale_by(const Variable& x, const Variable& s);
/// f64 [1]: Σ x · weights, for a constant tensor of weights.
Variable weighted_sum(const Variable& x, const Tensor& weights);

/// swish(h) with h [..., u + v + z] split by columns into three (a width of 0 gives an undefined one).
std::array<Variable, 3> swish_split(const Variable& h, std::int64_t u, std::int64_t v, std::int64_t z);
/// Rows divided by (their norm + 1e-9), zero rows and their gradients 0 (docs/methods.md).
Variable normalize_rows(const Variable& x);
/// Interleaved rotary pairs of x [B, R, D]; positions i32 [B, R] or undefined (row r is at r). No table: x itself.
Variable rotate(const Variable& x, const RotaryTable& table, const Tensor& positions);
/// Queries or keys from z [B, R, D] and gamma [D], one for each table of `how` (whose gamma is not read): see HeadTransform.
std::vector<Variable> head_rows(const Variable& z, const Variable& gamma, HeadTransform how);
Variable dropout(const Variable& x, const DropoutSpec& spec);
/// rms(residual + dropout(x)); residual may be absent.
Variable residual_rms_norm(const Variable& residual, const Variable& x, const DropoutSpec& spec, double eps);
/// word[ids] + type[types]: ids i32 of any shape S, types likewise or undefined -> [S, H]. The row of pad_id in `word` gets no
/// gradient here.
Variable embed(const Variable& word, const Variable& type, const Tensor& ids, const Tensor& types, std::int64_t pad_id);

/// Inputs of attention(), scaled, normalised and rotated; the far pairs are absent unless the plan has far regions.
struct AttentionVariables {
  Variable q_near, k_near;  ///< q [B, R, D], k [B, L, D]
  Variable q_left, k_left;
  Variable q_right, k_right;
  Variable v;       ///< [B, L, E]
  Tensor key_mask;  ///< i32 [B, L] or undefined
  Tensor rows;      ///< i32 [B, R] or undefined
};
/// dropout(softmax(logits + bias over visible keys)) · v -> [B, R, E]; see Backend::attention.
Variable attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec);

/// Σ cross-entropy over labelled rows as f64 [1], with what was seen on the way.
struct CrossEntropy {
  Variable sum;
  Tensor row_loss;   ///< f64 [M]
  Tensor predicted;  ///< i32 [M]
};
CrossEntropy cross_entropy(const Variable& logits, const Tensor& labels);

}  // namespace gau::ops
