// The composed forms of the fused ops: the same mathematics out of small ops, written for clarity. They are the oracle of the
// tests and hold what the fused forms avoid (attention keeps [B, R, L] arrays).
#pragma once

#include <functional>

#include "autograd/ops.h"

namespace gau::composed {

/// f(x) for every element, with its derivative: a plain loop on the host.
Variable map(const Variable& x, const std::function<double(double)>& f, const std::function<double(double)>& derivative);
/// Σ of each row [..., C] -> [rows].
Variable row_sum(const Variable& x);
/// Each row times its factor [rows], both differentiable.
Variable scale_rows(const Variable& x, const Variable& factor);
/// Columns [begin, end).
Variable slice_columns(const Variable& x, std::int64_t begin, std::int64_t end);

std::array<Variable, 3> swish_split(const Variable& h, std::int64_t u, std::int64_t v, std::int64_t z);
Variable normalize_rows(const Variable& x);
/// `scales` are learned numbers [1] that multiply the queries besides; the fused form has none.
std::vector<Variable> head_rows(const Variable& z, const Variable& gamma, const std::vector<Variable>& scales,
                                const HeadTransform& how);
Variable residual_rms_norm(const Variable& residual, const Variable& x, const DropoutSpec& spec, double eps);
Variable attention(const ops::AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec);
/// Σ over labelled rows of (ln Σ exp(logits) - logit of the label).
Variable cross_entropy(const Variable& logits, const Tensor& labels);

}  // namespace gau::composed
