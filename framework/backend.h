// Backend: the narrow waist between the graph and a machine.
//
// Pure virtual kernels over tensors of f32 or f64 (templates over the element type, so that the gradient check in double runs
// the code that trains in float). A kernel takes outputs last, allocates nothing that it returns, and may be given an output
// that aliases an input only where it says so. Shapes are checked by the free functions of framework/kernels.h in front.
// Sums over rows or elements run in fixed blocks combined in order: a result does not depend on the number of threads.
//
// "Rows × columns": a tensor of any rank seen as shape().rows() × shape().columns().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/attention_plan.h"
#include "framework/random.h"
#include "framework/tensor.h"

namespace gau {

/// A matrix, or `batch` equally spaced ones, inside a tensor. Element (b, r, c) is at
/// offset + b · batch_stride + r · row_stride + c; with `transposed`, (b, r, c) is read at (b, c, r) of that layout, so `rows`
/// and `cols` are always those of the matrix as it enters the product.
struct MatrixView {
  Tensor tensor;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  bool transposed = false;
  std::int64_t offset = 0;
  std::int64_t batch = 1;
  std::int64_t batch_stride = 0;

  /// The whole tensor as rows() × columns(); `transposed` gives its transpose.
  static MatrixView of(const Tensor& tensor, bool transposed = false);
  /// A tensor [N, R, C] as N matrices R × C (or their transposes).
  static MatrixView batched(const Tensor& tensor, bool transposed = false);
};

/// What attention works on. q and k are already scaled, normalised and rotated, one pair for each region that the plan has
/// (left and right are undefined without far regions).
struct AttentionInputs {
  Tensor q_near, k_near;    ///< q [B, R, D], k [B, L, D]
  Tensor q_left, k_left;    ///< keys at Δ ≥ near_limit
  Tensor q_right, k_right;  ///< keys at Δ ≤ -near_limit
  Tensor v;                 ///< [B, L, E]
  Tensor key_mask;          ///< i32 [B, L], 1 = a token, 0 = padding; undefined: all tokens
  Tensor rows;  ///< i32 [B, R]: position of each query row, -1 = unused (its output is 0); undefined: R = L, row r at r
  /// k and v may be a part of the keys, [first_key, first_key + their rows) of sequences of `length`; 0: they are whole.
  /// key_mask, rows and the plan always tell of whole sequences.
  std::int64_t first_key = 0;
  std::int64_t length = 0;
};

/// Gradients of attention; the far ones are undefined where the inputs are.
struct AttentionGradients {
  Tensor q_near, k_near, q_left, k_left, q_right, k_right, v;
};

/// One step of an optimizer over a segment of the flat buffers.
struct AdamStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< what a summed gradient is multiplied by: 1 / tokens · clip factor
  std::int64_t step = 1;      ///< counted from 1, for the bias correction
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;

  // --- products
  /// c = alpha · a b, or c + alpha · a b with `accumulate`; batches of a, b and c are equal, or 1 in a or b (used for all).
  virtual void gemm(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) = 0;

  /// With kBF16, products of f32 tensors round their operands to bfloat16 and sum in f32; f64 is never touched.
  virtual void set_product_type(DType type) = 0;
  virtual DType product_type() const = 0;
  /// Whether the machine has bf16 products; without them the same numbers come from f32 products.
  virtual bool has_native_bf16() const = 0;

  // --- elements
  virtual void fill(Tensor out, double value) = 0;
  /// Between f32, f64 and bf16 (round to nearest even).
  virtual void convert(const Tensor& in, Tensor out) = 0;
  /// out may be a or b.
  virtual void add(const Tensor& a, const Tensor& b, Tensor out) = 0;
  virtual void multiply(const Tensor& a, const Tensor& b, Tensor out) = 0;
  /// out = alpha · x; out may be x.
  virtual void scale(const Tensor& x, double alpha, Tensor out) = 0;
  /// Sum, sum of squares, dot product in double, in fixed blocks.
  virtual double sum(const Tensor& x) = 0;
  virtual double sum_of_squares(const Tensor& x) = 0;
  virtual double dot(const Tensor& a, const Tensor& b) = 0;

  // --- rows × columns
  /// out[r, c] = x[r, c] · factor[r]; out may be x.
  virtual void scale_rows(const Tensor& x, const Tensor& factor, Tensor out) = 0;
  /// out[r, c] = x[r, c] · factor[c]; out may be x.
  virtual void scale_columns(const Tensor& x, const Tensor& factor, Tensor out) = 0;
  /// out[c] = Σ_r a[r, c] · b[r, c], in fixed blocks of rows.
  virtual void column_dot(const Tensor& a, const Tensor& b, Tensor out) = 0;
  /// out[m, :] = x[rows[m], :]; rows i32 [M], -1 gives a row of zeros.
  virtual void gather_rows(const Tensor& x, const Tensor& rows, Tensor out) = 0;
  /// out[rows[m], :] = x[m, :], all other rows 0; rows are distinct, -1 is skipped.
  virtual void scatter_rows(const Tensor& x, const Tensor& rows, Tensor out) = 0;

  // --- the parts of a GAU layer
  /// h [N, 2E + D] -> swish(h) split into u [N, E], v [N, E], z [N, D]; swish(x) = x · sigmoid(x). Any of u, v may have width 0
  /// (undefined): the split follows the widths of the outputs.
  virtual void swish_split(const Tensor& h, Tensor u, Tensor v, Tensor z) = 0;
  /// dh from the gradients of the parts (undefined: zero), reading h again.
  virtual void swish_split_backward(const Tensor& h, const Tensor& du, const Tensor& dv, const Tensor& dz, Tensor dh) = 0;
  /// out = x / (‖x‖ + 1e-9) by row; inverse[r] = 1 / (‖x_r‖ + 1e-9), 0 for a zero row (its output and gradient are 0).
  virtual void normalize_rows(const Tensor& x, Tensor out, Tensor inverse) = 0;
  virtual void normalize_rows_backward(const Tensor& x, const Tensor& inverse, const Tensor& dout, Tensor dx) = 0;
  /// Rotates interleaved pairs (2i, 2i+1) of x [B, R, D] by the table's angles; positions i32 [B, R] (undefined: row r is at r;
  /// -1: row is copied). `inverse` rotates back (the gradient; exact for tables of any magnitude: it is the transpose).
  virtual void rotate(const Tensor& x, const RotaryTable& table, const Tensor& positions, bool inverse, Tensor out) = 0;
  /// z [B, R, D] -> out[t] [B, R, D] for every table t, in one pass.
  virtual void head_rows(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& out) = 0;
  /// From the gradients of the outputs (undefined: zero): dz, and dgamma [D] summed over rows in fixed blocks. Reads z again.
  virtual void head_rows_backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& dout, Tensor dz,
                                  Tensor dgamma) = 0;
  /// Dropout of x; out may be x. The gradient is the same call on the gradient.
  virtual void dropout(const Tensor& x, const DropoutSpec& spec, Tensor out) = 0;
  /// y = residual + dropout(x) (residual may be undefined: 0); out = y / sqrt(mean(y²) + eps); inverse_rms[r] keeps the
  /// divisor.
  virtual void residual_rms_norm(const Tensor& residual, const Tensor& x, const DropoutSpec& spec, double eps, Tensor out,
                                 Tensor inverse_rms) = 0;
  /// From out and inverse_rms: dresidual (undefined: not wanted) = dy, dx = dropout(dy).
  virtual void residual_rms_norm_backward(const Tensor& out, const Tensor& inverse_rms, const Tensor& dout,
                                          const DropoutSpec& spec, Tensor dresidual, Tensor dx) = 0;
  /// out[n, :] = word[ids[n], :] + type[types[n], :]; ids, types i32 [N] (types undefined: all 0).
  virtual void embed(const Tensor& word, const Tensor& type, const Tensor& ids, const Tensor& types, Tensor out) = 0;
  /// Adds into dword and dtype_table (either may be undefined); rows of `pad_id` get no gradient in dword. Rows of equal id are
  /// added in order of n.
  virtual void embed_backward(const Tensor& dout, const Tensor& ids, const Tensor& types, std::int64_t pad_id, Tensor dword,
                              Tensor dtype_table) = 0;

  // --- attention
  /// out [B, R, E] = softmax over visible keys (logits + bias) · v with dropout on the weights; log_sum_exp f64 [B, R] gets
  /// ln Σ exp(logit + bias), which f32 would round by more than its products do. A row that sees no token attends to all keys
  /// alike, as finite masks do (logits of 0); in a sequence without any token the output is 0. Memory is O(L) a row block. Of a
  /// part of the keys: the softmax over these; a row that sees none of them has output 0 and log_sum_exp -∞.
  virtual void attention(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
                         Tensor log_sum_exp) = 0;
  /// Writes (not adds) all gradients. Weights are exp(logit + bias - log_sum_exp): of a part of the keys these are the weights
  /// among all keys when `out` and `log_sum_exp` are those of all keys.
  virtual void attention_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout,
                                  const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                                  const AttentionGradients& gradients) = 0;
  /// out and log_sum_exp, of attention over some keys, become those over these and the keys of `part`, whose log_sum_exp is
  /// `part_log_sum_exp`: with l = ln(exp a + exp b), out = exp(a - l) · out + exp(b - l) · part.
  virtual void merge_attention(const Tensor& part, const Tensor& part_log_sum_exp, Tensor out, Tensor log_sum_exp) = 0;
  /// The weights themselves, without dropout: [B, R, L]. For composed forms, inspection and `predict --attention`.
  virtual void attention_weights(const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) = 0;

  // --- loss
  /// Cross-entropy of each row of logits [M, V] against labels i32 [M] (negative: ignored, loss 0): row_loss f64 [M] in nats,
  /// predicted i32 [M] the largest logit's index (the first of equals), log_sum_exp [M] as logits.
  virtual void cross_entropy(const Tensor& logits, const Tensor& labels, Tensor row_loss, Tensor predicted,
                             Tensor log_sum_exp) = 0;
  /// dlogits = scale · (softmax(logits) - onehot(label)), 0 for ignored rows; dlogits may be logits.
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& labels, const Tensor& log_sum_exp, double scale,
                                      Tensor dlogits) = 0;

  // --- optimizers, over flat segments
  /// AdamW: bias-corrected moments, decoupled decay: value -= lr · (m̂ / (sqrt(v̂) + eps) + decay · value).
  virtual void adamw(const AdamStep& step, const Tensor& gradient, Tensor value, Tensor first, Tensor second) = 0;
  /// LAMB, first half: moments without bias correction and update = m / (sqrt(v) + eps) + decay · value.
  virtual void lamb_update(const AdamStep& step, const Tensor& gradient, const Tensor& value, Tensor first, Tensor second,
                           Tensor update) = 0;
  /// value -= rate · update.
  virtual void apply_update(double rate, const Tensor& update, Tensor value) = 0;
  /// Index of the first element that is not finite, or -1.
  virtual std::int64_t first_non_finite(const Tensor& x) = 0;
};

/// The backend of this process: the CPU's.
Backend& backend();

/// Sets the type of the backend's products while it lives.
class ProductTypeScope {
 public:
  ProductTypeScope(Backend& where, DType type) : backend_(where), before_(where.product_type()) {
    where.set_product_type(type);
  }
  ~ProductTypeScope() { backend_.set_product_type(before_); }
  ProductTypeScope(const ProductTypeScope&) = delete;
  ProductTypeScope& operator=(const ProductTypeScope&) = delete;

 private:
  Backend& backend_;
  DType before_;
};

}  // namespace gau
