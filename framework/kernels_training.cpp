// The front doors of embedding, attention, loss and optimizers.
#include <limits>

#include "framework/kernel_checks.h"
#include "framework/kernel_timer.h"
#include "framework/kernels.h"

namespace gau::kernels {

void embed(const Tensor& word, const Tensor& type, const Tensor& ids, const Tensor& types, Tensor out) {
  const KernelTimer timer("embed");
  require_real("embed", {"word", word});
  require_same_columns("embed", {"word", word}, {"type", type});
  require_same_columns("embed", {"word", word}, {"out", out});
  require_indices("embed", {"ids", ids}, 0, word.rows());
  if (types.defined()) {
    require_indices("embed", {"types", types}, 0, type.rows());
    if (types.size() != ids.size()) mismatch("embed", "sizes differ", {"ids", ids}, {"types", types});
  }
  check(type.rows() >= 1, ExitCode::kData, "kernel embed: {} has no row", describe("type", type));
  if (out.rows() != ids.size()) mismatch("embed", "rows differ", {"ids", ids}, {"out", out});
  backend().embed(word, type, ids, types, out);
}

void embed_backward(const Tensor& dout, const Tensor& ids, const Tensor& types, std::int64_t pad_id, Tensor dword,
                    Tensor dtype_table) {
  const KernelTimer timer("embed_backward");
  require_real("embed_backward", {"dout", dout});
  require_indices("embed_backward", {"ids", ids}, 0, dword.defined() ? dword.rows() : std::numeric_limits<std::int32_t>::max());
  if (dout.rows() != ids.size()) mismatch("embed_backward", "rows differ", {"dout", dout}, {"ids", ids});
  if (dword.defined()) require_same_columns("embed_backward", {"dout", dout}, {"dword", dword});
  if (dtype_table.defined()) {
    require_same_columns("embed_backward", {"dout", dout}, {"dtype_table", dtype_table});
    check(dtype_table.rows() >= 1, ExitCode::kData, "kernel embed_backward: {} has no row",
          describe("dtype_table", dtype_table));
    if (types.defined()) {
      require_indices("embed_backward", {"types", types}, 0, dtype_table.rows());
      if (types.size() != ids.size()) mismatch("embed_backward", "sizes differ", {"ids", ids}, {"types", types});
    }
  }
  backend().embed_backward(dout, ids, types, pad_id, dword, dtype_table);
}

namespace {

// A tensor [B, rows, columns] of q's type.
void require_rank3(const char* kernel, const Operand& q, const Operand& x, std::int64_t rows, std::int64_t columns) {
  require_type(kernel, x, q.tensor.dtype());
  if (x.tensor.shape() != Shape{q.tensor.dim(0), rows, columns}) mismatch(kernel, "shapes do not fit", q, x);
}

void require_attention_inputs(const char* kernel, const AttentionInputs& in, const AttentionPlan& plan, bool with_values) {
  const Operand q{"q", in.q_near};
  require_real(kernel, q);
  check(in.q_near.shape().rank() == 3, ExitCode::kData, "kernel {}: {} is not [B, R, D]", kernel, describe("q", in.q_near));
  const std::int64_t batch = in.q_near.dim(0), queries = in.q_near.dim(1), width = in.q_near.dim(2);
  require_type(kernel, {"k", in.k_near}, in.q_near.dtype());
  check(in.k_near.shape().rank() == 3, ExitCode::kData, "kernel {}: {} is not [B, L, D]", kernel, describe("k", in.k_near));
  const std::int64_t keys = in.k_near.dim(1), length = in.length > 0 ? in.length : keys;
  check(in.first_key >= 0 && in.first_key + keys <= length, ExitCode::kData,
        "kernel {}: {} from key {} on are no part of {} keys", kernel, describe("k", in.k_near), in.first_key, length);
  require_rank3(kernel, q, {"k", in.k_near}, keys, width);
  if (plan.has_far()) {
    require_rank3(kernel, q, {"q_left", in.q_left}, queries, width);
    require_rank3(kernel, q, {"k_left", in.k_left}, keys, width);
    require_rank3(kernel, q, {"q_right", in.q_right}, queries, width);
    require_rank3(kernel, q, {"k_right", in.k_right}, keys, width);
  }
  if (with_values) {
    require_type(kernel, {"v", in.v}, in.q_near.dtype());
    check(in.v.shape().rank() == 3 && in.v.dim(0) == batch && in.v.dim(1) == keys, ExitCode::kData,
          "kernel {}: {} does not fit {}", kernel, describe("v", in.v), describe("k", in.k_near));
  }
  if (in.key_mask.defined()) {
    require_indices(kernel, {"key_mask", in.key_mask}, 0, 2);
    if (in.key_mask.size() != batch * length) mismatch(kernel, "sizes differ", {"k", in.k_near}, {"key_mask", in.key_mask});
  }
  if (in.rows.defined()) {
    require_indices(kernel, {"rows", in.rows}, -1, length);
    if (in.rows.size() != batch * queries) mismatch(kernel, "rows differ", q, {"rows", in.rows});
  } else if (queries != length) {
    mismatch(kernel, "lengths differ", q, {"k", in.k_near});
  }
}

void require_rate(const char* kernel, const DropoutSpec& spec) {
  check(spec.rate >= 0 && spec.rate < 1, ExitCode::kData, "kernel {}: a dropout rate of {} is not in [0, 1)", kernel,
        spec.rate);
}

// One f64 a query row.
void require_log_sums(const char* kernel, const Operand& out, const Operand& log_sums) {
  require_type(kernel, log_sums, DType::kF64);
  if (log_sums.tensor.size() != out.tensor.rows()) mismatch(kernel, "rows differ", out, log_sums);
}

// A wanted gradient has its input's shape and type.
void require_gradient(const char* kernel, const Operand& x, const Operand& dx) {
  if (!dx.tensor.defined()) return;
  require_defined(kernel, x);
  require_type(kernel, dx, x.tensor.dtype());
  if (dx.tensor.shape() != x.tensor.shape()) mismatch(kernel, "shapes differ", x, dx);
}

}  // namespace

void attention(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
               Tensor log_sum_exp) {
  const KernelTimer timer("attention");
  require_attention_inputs("attention", in, plan, true);
  require_rate("attention", dropout);
  require_rank3("attention", {"q", in.q_near}, {"out", out}, in.q_near.dim(1), in.v.dim(2));
  require_log_sums("attention", {"q", in.q_near}, {"log_sum_exp", log_sum_exp});
  backend().attention(in, plan, dropout, out, log_sum_exp);
}

void attention_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, const Tensor& out,
                        const Tensor& log_sum_exp, const Tensor& dout, const AttentionGradients& gradients) {
  const KernelTimer timer("attention_backward");
  constexpr const char* kernel = "attention_backward";
  require_attention_inputs(kernel, in, plan, true);
  require_rate(kernel, dropout);
  require_rank3(kernel, {"q", in.q_near}, {"out", out}, in.q_near.dim(1), in.v.dim(2));
  require_log_sums(kernel, {"q", in.q_near}, {"log_sum_exp", log_sum_exp});
  require_same_matrix(kernel, {"out", out}, {"dout", dout});
  require_gradient(kernel, {"q", in.q_near}, {"dq", gradients.q_near});
  require_gradient(kernel, {"k", in.k_near}, {"dk", gradients.k_near});
  require_gradient(kernel, {"q_left", in.q_left}, {"dq_left", gradients.q_left});
  require_gradient(kernel, {"k_left", in.k_left}, {"dk_left", gradients.k_left});
  require_gradient(kernel, {"q_right", in.q_right}, {"dq_right", gradients.q_right});
  require_gradient(kernel, {"k_right", in.k_right}, {"dk_right", gradients.k_right});
  require_gradient(kernel, {"v", in.v}, {"dv", gradients.v});
  backend().attention_backward(in, plan, dropout, out, log_sum_exp, dout, gradients);
}

void merge_attention(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp) {
  const KernelTimer timer("merge_attention");
  constexpr const char* kernel = "merge_attention";
  require_real(kernel, {"part", part});
  require_same_matrix(kernel, {"part", part}, {"out", out});
  require_log_sums(kernel, {"part", part}, {"part_log_sum_exp", part_log_sum_exp});
  require_log_sums(kernel, {"out", out}, {"log_sum_exp", log_sum_exp});
  backend().merge_attention(part, part_log_sum_exp, out, log_sum_exp);
}

void attention_weights(const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) {
  const KernelTimer timer("attention_weights");
  check(in.length == 0, ExitCode::kData, "kernel attention_weights: a part of the keys does not tell the weights");
  require_attention_inputs("attention_weights", in, plan, false);
  require_rank3("attention_weights", {"q", in.q_near}, {"weights", weights}, in.q_near.dim(1), in.k_near.dim(1));
  backend().attention_weights(in, plan, weights);
}

void cross_entropy(const Tensor& logits, const Tensor& labels, Tensor row_loss, Tensor predicted, Tensor log_sum_exp) {
  const KernelTimer timer("cross_entropy");
  constexpr const char* kernel = "cross_entropy";
  const Operand rows{"logits", logits};
  require_real(kernel, rows);
  check(logits.columns() >= 1, ExitCode::kData, "kernel {}: {} has no columns", kernel, describe("logits", logits));
  require_indices(kernel, {"labels", labels}, std::numeric_limits<std::int32_t>::min(), logits.columns());
  require_type(kernel, {"row_loss", row_loss}, DType::kF64);
  require_type(kernel, {"predicted", predicted}, DType::kI32);
  require_row_values(kernel, rows, {"log_sum_exp", log_sum_exp});
  for (const Operand& one : {Operand{"labels", labels}, Operand{"row_loss", row_loss}, Operand{"predicted", predicted}}) {
    if (one.tensor.size() != logits.rows()) mismatch(kernel, "rows differ", rows, one);
  }
  backend().cross_entropy(logits, labels, row_loss, predicted, log_sum_exp);
}

void cross_entropy_backward(const Tensor& logits, const Tensor& labels, const Tensor& log_sum_exp, double scale,
                            Tensor dlogits) {
  const KernelTimer timer("cross_entropy_backward");
  constexpr const char* kernel = "cross_entropy_backward";
  const Operand rows{"logits", logits};
  require_real(kernel, rows);
  require_indices(kernel, {"labels", labels}, std::numeric_limits<std::int32_t>::min(), logits.columns());
  if (labels.size() != logits.rows()) mismatch(kernel, "rows differ", rows, {"labels", labels});
  require_row_values(kernel, rows, {"log_sum_exp", log_sum_exp});
  require_same_matrix(kernel, rows, {"dlogits", dlogits});
  backend().cross_entropy_backward(logits, labels, log_sum_exp, scale, dlogits);
}

void adamw(const AdamStep& step, const Tensor& gradient, Tensor value, Tensor first, Tensor second) {
  const KernelTimer timer("adamw");
  require_real("adamw", {"value", value});
  require_same_size("adamw", {"value", value}, {"gradient", gradient});
  require_same_size("adamw", {"value", value}, {"first", first});
  require_same_size("adamw", {"value", value}, {"second", second});
  check(step.step >= 1, ExitCode::kData, "kernel adamw: step {} (counted from 1)", step.step);
  backend().adamw(step, gradient, value, first, second);
}

void lamb_update(const AdamStep& step, const Tensor& gradient, const Tensor& value, Tensor first, Tensor second,
                 Tensor update) {
  const KernelTimer timer("lamb_update");
  require_real("lamb_update", {"value", value});
  require_same_size("lamb_update", {"value", value}, {"gradient", gradient});
  require_same_size("lamb_update", {"value", value}, {"first", first});
  require_same_size("lamb_update", {"value", value}, {"second", second});
  require_same_size("lamb_update", {"value", value}, {"update", update});
  backend().lamb_update(step, gradient, value, first, second, update);
}

void apply_update(double rate, const Tensor& update, Tensor value) {
  const KernelTimer timer("apply_update");
  require_real("apply_update", {"value", value});
  require_same_size("apply_update", {"value", value}, {"update", update});
  backend().apply_update(rate, update, value);
}

std::int64_t first_non_finite(const Tensor& x) {
  const KernelTimer timer("first_non_finite");
  require_real("first_non_finite", {"x", x});
  return backend().first_non_finite(x);
}

}  // namespace gau::kernels
