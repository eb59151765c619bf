// The CPU's backend. Every kernel is a template over float and double, dispatched by the tensors' type; loops over rows or
// elements go through parallel_for in blocks whose size depends on the shape alone.
#pragma once

#include <string>

#include "framework/backend.h"

namespace gau {

/// Methods as Backend documents them, one .cpp a group.
class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }

  // gemm.cpp
  void gemm(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) override;

  void set_product_type(DType type) override { product_type_ = type; }
  DType product_type() const override { return product_type_; }
  bool has_native_bf16() const override;

  // elementwise.cpp
  void fill(Tensor out, double value) override;
  void convert(const Tensor& in, Tensor out) override;
  void add(const Tensor& a, const Tensor& b, Tensor out) override;
  void multiply(const Tensor& a, const Tensor& b, Tensor out) override;
  void scale(const Tensor& x, double alpha, Tensor out) override;

  // reduce.cpp
  double sum(const Tensor& x) override;
  double sum_of_squares(const Tensor& x) override;
  double dot(const Tensor& a, const Tensor& b) override;
  void column_dot(const Tensor& a, const Tensor& b, Tensor out) override;
  std::int64_t first_non_finite(const Tensor& x) override;

  // rows.cpp
  void scale_rows(const Tensor& x, const Tensor& factor, Tensor out) override;
  void scale_columns(const Tensor& x, const Tensor& factor, Tensor out) override;
  void gather_rows(const Tensor& x, const Tensor& rows, Tensor out) override;
  void scatter_rows(const Tensor& x, const Tensor& rows, Tensor out) override;
  void rotate(const Tensor& x, const RotaryTable& table, const Tensor& positions, bool inverse, Tensor out) override;

  // head_rows.cpp
  void head_rows(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& out) override;
  void head_rows_backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& dout, Tensor dz,
                          Tensor dgamma) override;

  // swish.cpp
  void swish_split(const Tensor& h, Tensor u, Tensor v, Tensor z) override;
  void swish_split_backward(const Tensor& h, const Tensor& du, const Tensor& dv, const Tensor& dz, Tensor dh) override;

  // norms.cpp
  void normalize_rows(const Tensor& x, Tensor out, Tensor inverse) override;
  void normalize_rows_backward(const Tensor& x, const Tensor& inverse, const Tensor& dout, Tensor dx) override;
  void dropout(const Tensor& x, const DropoutSpec& spec, Tensor out) override;
  void residual_rms_norm(const Tensor& residual, const Tensor& x, const DropoutSpec& spec, double eps, Tensor out,
                         Tensor inverse_rms) override;
  void residual_rms_norm_backward(const Tensor& out, const Tensor& inverse_rms, const Tensor& dout, const DropoutSpec& spec,
                                  Tensor dresidual, Tensor dx) override;

  // embedding.cpp
  void embed(const Tensor& word, const Tensor& type, const Tensor& ids, const Tensor& types, Tensor out) override;
  void embed_backward(const Tensor& dout, const Tensor& ids, const Tensor& types, std::int64_t pad_id, Tensor dword,
                      Tensor dtype_table) override;

  // attention*.cpp
  void attention(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
                 Tensor log_sum_exp) override;
  void attention_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, const Tensor& out,
                          const Tensor& log_sum_exp, const Tensor& dout, const AttentionGradients& gradients) override;
  void merge_attention(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp) override;
  void attention_weights(const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) override;

  // loss.cpp
  void cross_entropy(const Tensor& logits, const Tensor& labels, Tensor row_loss, Tensor predicted,
                     Tensor log_sum_exp) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& labels, const Tensor& log_sum_exp, double scale,
                              Tensor dlogits) override;

  // optimizers.cpp
  void adamw(const AdamStep& step, const Tensor& gradient, Tensor value, Tensor first, Tensor second) override;
  void lamb_update(const AdamStep& step, const Tensor& gradient, const Tensor& value, Tensor first, Tensor second,
                   Tensor update) override;
  void apply_update(double rate, const Tensor& update, Tensor value) override;

 private:
  DType product_type_ = DType::kF32;
};

}  // namespace gau
