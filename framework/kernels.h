// The kernels as everybody calls them: free functions that check shapes and types, then ask the backend.
//
// Semantics are those of framework/backend.h. A violated check throws Error(kData): the kernel, what is wrong and both shapes.
// Outputs are made by the caller, except in the few forms at the end that make their result.
#pragma once

#include <cstdint>

#include "framework/backend.h"

namespace gau::kernels {

/// c = alpha · a b, or c + alpha · a b with `accumulate`. Inner sizes, outer sizes and batches (equal, or 1 in a or b) must
/// fit. Where c is f32, a and b may be bf16: rounded before, they are as they would be rounded here.
void gemm(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha = 1, bool accumulate = false);

void fill(Tensor out, double value);
/// Between f32, f64 and bf16; the same type copies. Only the number of elements must agree.
void convert(const Tensor& in, Tensor out);
void add(const Tensor& a, const Tensor& b, Tensor out);
void multiply(const Tensor& a, const Tensor& b, Tensor out);
void scale(const Tensor& x, double alpha, Tensor out);
double sum(const Tensor& x);
double sum_of_squares(const Tensor& x);
double dot(const Tensor& a, const Tensor& b);

void scale_rows(const Tensor& x, const Tensor& factor, Tensor out);
void scale_columns(const Tensor& x, const Tensor& factor, Tensor out);
void column_dot(const Tensor& a, const Tensor& b, Tensor out);
void gather_rows(const Tensor& x, const Tensor& rows, Tensor out);
void scatter_rows(const Tensor& x, const Tensor& rows, Tensor out);

void swish_split(const Tensor& h, Tensor u, Tensor v, Tensor z);
void swish_split_backward(const Tensor& h, const Tensor& du, const Tensor& dv, const Tensor& dz, Tensor dh);
void normalize_rows(const Tensor& x, Tensor out, Tensor inverse);
void normalize_rows_backward(const Tensor& x, const Tensor& inverse, const Tensor& dout, Tensor dx);
void rotate(const Tensor& x, const RotaryTable& table, const Tensor& positions, bool inverse, Tensor out);
void head_rows(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& out);
void head_rows_backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& dout, Tensor dz, Tensor dgamma);
void dropout(const Tensor& x, const DropoutSpec& spec, Tensor out);
void residual_rms_norm(const Tensor& residual, const Tensor& x, const DropoutSpec& spec, double eps, Tensor out,
                       Tensor inverse_rms);
void residual_rms_norm_backward(const Tensor& out, const Tensor& inverse_rms, const Tensor& dout, const DropoutSpec& spec,
                                Tensor dresidual, Tensor dx);
void embed(const Tensor& word, const Tensor& type, const Tensor& ids, const Tensor& types, Tensor out);
void embed_backward(const Tensor& dout, const Tensor& ids, const Tensor& types, std::int64_t pad_id, Tensor dword,
                    Tensor dtype_table);

void attention(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
               Tensor log_sum_exp);
void attention_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, const Tensor& out,
                        const Tensor& log_sum_exp, const Tensor& dout, const AttentionGradients& gradients);
void merge_attention(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp);
void attention_weights(const AttentionInputs& in, const AttentionPlan& plan, Tensor weights);

void cross_entropy(const Tensor& logits, const Tensor& labels, Tensor row_loss, Tensor predicted, Tensor log_sum_exp);
void cross_entropy_backward(const Tensor& logits, const Tensor& labels, const Tensor& log_sum_exp, double scale,
                            Tensor dlogits);

void adamw(const AdamStep& step, const Tensor& gradient, Tensor value, Tensor first, Tensor second);
void lamb_update(const AdamStep& step, const Tensor& gradient, const Tensor& value, Tensor first, Tensor second, Tensor update);
void apply_update(double rate, const Tensor& update, Tensor value);
std::int64_t first_non_finite(const Tensor& x);

}  // namespace gau::kernels
