// Windows in, a loss for each target out: the inner loop of an evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/communicator.h"
#include "train/evaluator.h"

namespace gau {

/// Which tokens of a window are replaced by [MASK].
enum class MaskMode {
  kAll,     ///< every target of the document, scored here or not
  kScored,  ///< only those that are scored
  kNone,    ///< none: the data holds its own
};

struct ScoringTask {
  const Model& model;
  const EvalCorpus& corpus;
  const TargetSet& targets;
  const std::vector<EvalWindow>& windows;
  std::int64_t length = 0;
  MaskMode mask = MaskMode::kAll;
  std::int64_t batch_tokens = 0;
  Communicator& ranks = one_rank();  ///< batches go to them in turn,
  bool shared = false;               ///< or they share the sequences of each batch
  SequenceExchange exchange = SequenceExchange::kGather;
};

/// By target number.
struct TargetScores {
  std::vector<double> loss;   ///< nats
  std::vector<char> correct;  ///< 1 when the likeliest token is the right one
};

/// A batch of windows as the model takes it, and where its rows belong.
struct WindowBatch {
  ModelInputs inputs;
  Tensor labels;                     ///< i32 [M], -1 in padding
  std::vector<std::int64_t> target;  ///< target number of each row
};

/// What the model made of the rows of a batch.
struct RowLosses {
  Tensor row_loss;   ///< f64 [M]
  Tensor predicted;  ///< i32 [M]
};
using RowScorer = std::function<RowLosses(const WindowBatch&)>;

/// `done` is told how many more windows are through. `scorer` runs the model where more than losses is wanted of it; with
/// several ranks it sees the batches of its own, and cannot be had with shared sequences. All ranks get all scores.
TargetScores score(const ScoringTask& task, Planner& planner, const std::function<void(std::int64_t)>& done,
                   const RowScorer& scorer = {});

/// `values` are by target number, right for the targets in this rank's batches; afterwards for all. All ranks call.
void share_by_target(const ScoringTask& task, std::vector<double>& values);

/// Mean row entropy of attention in nats, over all layers, on a few of the task's windows and rows, evenly spaced: about 2048
/// tokens, at least one window.
double entropy_of(const ScoringTask& task, Planner& planner);

/// How many windows of `length` tokens share a pass: at least 1.
std::int64_t windows_per_batch(std::int64_t batch_tokens, std::int64_t length);
/// The largest number of targets that one window scores.
std::int64_t most_scored(const std::vector<EvalWindow>& windows);

}  // namespace gau
