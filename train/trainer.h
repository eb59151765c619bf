// Trainer: one optimizer step after another, and validation. Files, logs and checkpoints are the training run's business.
//
// A step: for each virtual shard, its sequences of every micro-step forward and backward; the shards' gradients summed along
// one tree; one division by the number of masked tokens; clipping; the optimizer. Everything is a function of the
// configuration, the corpus and the step's number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/loader.h"
#include "layers/model.h"
#include "train/attention_stats.h"
#include "train/config.h"
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
};

class Trainer {
 public:
  /// The model's vocabulary is the corpus's. `first_step` is the step() to begin with.
  Trainer(const Config& config, const Corpus& corpus);
  ~Trainer();

  Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  std::int64_t parameters() const { return model_.parameters().size(); }

  /// Runs optimizer step `step`; steps are taken in order, from the first one asked for.
  StepReport step(std::int64_t step);

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
  struct Shard {
    std::int64_t begin, end;  // sequences of a micro-step
  };
  Shard shard(std::int64_t index) const;
  std::unique_ptr<Prefetcher> prefetch_from(std::int64_t step) const;
  LossSums accumulate(std::int64_t step);
  static ModelInputs inputs_of(const MaskedBatch& batch);
  std::string non_finite_reason() const;

  Config config_;
  Model model_;
  Optimizer optimizer_;
  mutable Planner planner_;
  Loader loader_;
  std::unique_ptr<Loader> validation_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::int64_t next_step_ = -1;
  GradientTree tree_;
};

}  // namespace gau
