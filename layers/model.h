// GAU-α: embedding, N gated attention units, tied head. The whole forward pass is Model::hidden() and Model::logits().
//
//   h0 = rms(dropout(word[id] + type[t]));  x = rms(x + dropout(gau(x)))  N times;  logits = dropout(x) · wordᵀ
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/variable.h"
#include "layers/context.h"
#include "layers/flat_parameters.h"
#include "layers/gau_layer.h"
#include "layers/model_config.h"
#include "layers/planner.h"

namespace gau {

struct ModelInputs {
  Tensor ids;        ///< i32 [B, L]
  Tensor types;      ///< i32 [B, L]; undefined: all 0
  Tensor key_mask;   ///< i32 [B, L]; undefined: no padding
  Tensor positions;  ///< f64 [B, L]; undefined: 0, 1, 2, …
  /// i32 [M]: flat positions b · L + i whose hidden rows are wanted, ascending; trailing -1 are padding. Undefined: all rows.
  /// The last layer computes only these.
  Tensor rows;
  std::int64_t nominal_length = 0;  ///< see BatchLayout
};

/// Loss of a batch: sums, so that shards, micro-batches and ranks add up exactly.
struct MaskedLoss {
  Variable sum;              ///< f64 [1]: Σ cross-entropy in nats over labelled rows
  Tensor row_loss;           ///< f64 [M]
  Tensor predicted;          ///< i32 [M]
  std::int64_t count = 0;    ///< labelled rows
  std::int64_t correct = 0;  ///< of them, predicted right
};

class Model {
 public:
  /// Parameters are allocated, not initialised.
  explicit Model(const ModelConfig& config, DType dtype = DType::kF32);

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  FlatParameters& parameters() { return parameters_; }
  const FlatParameters& parameters() const { return parameters_; }

  /// Truncated normal (layers/initializer.h), γ by config.attention.init_gamma, learned scales. A function of (config, seed).
  void initialize(std::uint64_t seed);

  /// Hidden states [B, L, H], or [M, H] with inputs.rows. `observer` is told the output of the embedding (index 0) and of each
  /// layer.
  using Observer = std::function<void(std::int64_t, const Variable&)>;
  Variable hidden(const Context& context, const ModelInputs& inputs, Planner& planner, const Observer& observer = {}) const;
  /// Logits of hidden rows: x [..., H] -> [..., V], after the head's dropout. `rows` as in ModelInputs, for its random keys.
  Variable logits(const Context& context, const Variable& x, std::int64_t length, const Tensor& rows) const;
  /// hidden() at inputs.rows, logits, cross-entropy against labels i32 [M] (negative: no label). The ranks of context.group get
  /// the same result; backward leaves with each the gradient of its own rows, and their sum is the gradient.
  MaskedLoss masked_loss(const Context& context, const ModelInputs& inputs, const Tensor& labels, Planner& planner) const;
  /// Calls visit(layer, inputs, plan) with what each layer's attention works on at inputs.rows (undefined: all rows), without
  /// dropout. A layer is run after the visit to it, by a plan that the planner is asked for then. Returns what hidden() does.
  /// Each rank of a group sees other ones of the rows: whole blocks of kAttentionBlockRows of them, or rows at -1; all keys,
  /// and no values.
  using AttentionVisitor = std::function<void(std::int64_t, const AttentionInputs&, const AttentionPlan&)>;
  Variable visit_attention(const ModelInputs& inputs, Planner& planner, const AttentionVisitor& visit,
                           const RankGroup& group = {}) const;
  /// Attention weights [B, L, L] of every layer, without dropout.
  std::vector<Tensor> attention(const ModelInputs& inputs, Planner& planner) const;

 private:
  struct Batch;
  Batch batch_of(const Context& context, const ModelInputs& inputs) const;
  Variable run(const Context& context, const Batch& batch, Planner& planner, const Observer& observer) const;

  ModelConfig config_;
  DType dtype_;
  FlatParameters parameters_;
  std::vector<GauLayer> layers_;
  Variable word_, type_, decoder_;
};

}  // namespace gau
