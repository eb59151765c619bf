// Trainer: one optimizer step after another, and validation. Files, logs and checkpoints are the training run's business.
//
// A step: for each virtual shard, its sequences of every micro-step forward and backward; the shards' gradients summed along
// one tree; one division by the number of masked tokens; clipping; the optimizer. Everything is a function of the
// configuration, the corpus and the step's number.
//
// Several ranks take contiguous parts of the shards each and exchange gradients during the last shard's backward
// (gradient_exchange.h). Every decision is made from reduced values, so all ranks make the same one. With
// [train] sequence_parallel = k it is groups of k neighbouring ranks that take shards; the ranks of a group share each
// sequence's rows (layers/shared_rows.h), and their gradients are parts of the shards' ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/corpus.h"
#include "data/loader.h"
#include "framework/communicator.h"
#include "layers/model.h"
#include "train/attention_stats.h"
#include "train/bucket_plan.h"
#include "train/config.h"
#include "train/gradient_exchange.h"
#include "train/gradient_tree.h"
#include "train/optimizer.h"

namespace gau {

/// Sums over masked tokens.
struct LossSums {
  double loss = 0;  ///< nats
  std::int64_t count = 0;
  std::int64_t correct = 0;
  std::int64_t tokens = 0;  ///< tokens read, padding excluded

  void add(const MaskedLoss& part, std::int64_t tokens_read);
  void add(const LossSums& part);
  double mean_loss() const;  ///< NaN without masked tokens
  double accuracy() const;
};

struct StepReport {
  std::int64_t step = 0;  ///< 0-based number of the step
  LossSums sums;
  double learning_rate = 0;
  double gradient_norm = 0;  ///< of the mean gradient, before clipping
  std::string skipped;       ///< why the parameters were left alone; empty: they were not
  bool non_finite = false;
  std::uint32_t flags = 0;  ///< those of all ranks
  double waited = 0;        ///< seconds from the end of this rank's backward until all gradients were exchanged
};

/// How a step's work is cut. Shards are numbered over all ranks; a rank has [first, last). Where ranks share sequences `rank`
/// and `ranks` count groups of them.
struct ShardPlan {
  ReduceOrder order = ReduceOrder::kTree;
  std::int64_t shards = 1, first = 0, last = 1;

  /// [train] shards in tree order where `ranks` is a power of two up to their number; else one shard a rank, added in the order
  /// of ranks, which is equal up to rounding.
  static ShardPlan of(const TrainConfig& train, int rank, int ranks);
};

class Trainer {
 public:
  /// The model's vocabulary is the corpus's. `ranks` must outlive the trainer; all of them make one.
  Trainer(const Config& config, const Corpus& corpus, Communicator& ranks = one_rank());
  ~Trainer();

  Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const { return model_.parameters().size(); }

  /// Runs optimizer step `step`; steps are taken in order, from the first one asked for. `flags` is asked once the gradients
  /// are there; those of all ranks are united in the report, so that what one asks for reaches all in the same step. With
  /// several ranks all call, here and below.
  StepReport step(std::int64_t step, const std::function<std::uint32_t()>& flags = {});

  /// First and second moments of the elements that this rank wants; `wanted` by rank. Shared with the optimizer where it has
  /// them all.
  std::pair<Tensor, Tensor> moments(const std::vector<Range>& wanted) const;

  bool has_validation() const { return validation_ != nullptr; }
  /// The validation split with fixed masks and without dropout: at most `batches` batches, spread evenly over it.
  LossSums validate(std::int64_t batches) const;
  /// For each layer the mean figures of its attention (entropy, weight that a token gives itself) on a few validation
  /// sequences.
  std::vector<RowFigures> attention_figures() const;

  /// Floating-point operations of the matrix products of one optimizer step, forward and backward, with `masked` of its tokens
  /// in the loss.
  double step_operations(std::int64_t masked) const;

 private:
  /// Of a shard, as ranks tell each other; plain data.
  struct ShardReport {
    LossSums sums;
    std::uint32_t flags = 0;
    std::uint32_t padding = 0;
  };
  std::int64_t local_shards() const { return plan_.last - plan_.first; }
  /// Sequences of a micro-step that belong to a shard.
  Range shard(std::int64_t index) const { return part_of(config_.data.batch, index, plan_.shards); }
  std::unique_ptr<Prefetcher> prefetch_from(std::int64_t step) const;
  std::vector<ShardReport> accumulate(std::int64_t step);
  LossSums run_shard(Context context, std::int64_t index);
  void backward_and_sum(const Variable& loss, bool last_shard);
  void add_to_sum(const Parameter& parameter, bool last_shard);
  void finish_shard(bool last_shard);
  int groups() const { return ranks_.size() / group_.count; }
  std::vector<ShardReport> reports_of_all(std::vector<ShardReport> mine, std::int64_t step);
  static ModelInputs inputs_of(const MaskedBatch& batch);
  LossSums validate_batch(std::int64_t index, std::int64_t count) const;
  static RankGroup group_of(const TrainConfig& train, Communicator& ranks);
  std::string non_finite_reason(const std::vector<ShardReport>& reports) const;

  Config config_;
  Communicator& ranks_;
  RankGroup group_;  ///< ranks that share each sequence with this one
  ShardPlan plan_;
  Model model_;
  BucketPlan buckets_;
  Optimizer optimizer_;
  mutable Planner planner_;
  Loader loader_;
  std::unique_ptr<Loader> validation_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::int64_t next_step_ = -1;
  GradientTree tree_;
  GradientExchange exchange_;
  std::vector<char> finished_;  ///< by parameter: its gradient is final in this shard
};

}  // namespace gau
