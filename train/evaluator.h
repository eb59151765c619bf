// Evaluation of a model: methods × lengths over the same targets, with intervals and, beside them, the short crop.
//
// Windows go through Model::masked_loss in batches of a fixed token budget; only target rows get logits. Losses are kept by
// target, then summed by unit, so figures do not depend on how windows were batched (up to the rounding of matrix products).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/communicator.h"
#include "layers/method.h"
#include "layers/model.h"
#include "train/eval_targets.h"
#include "train/evaluation.h"

namespace gau {

/// Whether ranks share the sequences of a batch, or each take batches of their own.
enum class SequenceParallel {
  kAuto,  ///< where there are fewer batches than ranks, and sequences are long enough for all of them
  kOn,
  kOff,
};
/// "auto", "on", "off"; throws Error(kUsage) for others.
SequenceParallel parse_sequence_parallel(const std::string& name);

enum class Protocol { kFixedTarget, kPaper, kLabels };
/// "fixed-target", "paper", "labels"; throws Error(kUsage) for others.
Protocol parse_protocol(const std::string& name);
const char* name_of(Protocol protocol);

/// What is evaluated on: the documents of one split.
struct EvalCorpus {
  std::string path;
  std::string split;
  std::vector<EvalDocument> documents;
  std::vector<std::int32_t> special_ids;  ///< never targets
  std::int32_t mask_id = -1;              ///< id of [MASK]; negative: there is none
  /// Of data with labels: by token id, the answers to choose from; see answer_choices(). May be empty.
  std::vector<std::vector<std::int32_t>> answer_choices;
};

struct EvalOptions {
  std::string label;  ///< name of the model in tables
  Protocol protocol = Protocol::kFixedTarget;
  std::vector<std::int64_t> lengths;  ///< empty: default_lengths()
  std::vector<Method> methods;        ///< empty: the model's own
  std::int64_t targets = 0;           ///< fixed-target, labels: at most so many in all; paper: a document; 0: all
  std::int64_t stride = 0;            ///< distance between targets; 0: L_train
  std::int64_t train_length = 0;      ///< 0: the model's own
  std::uint64_t seed = 0;
  std::int64_t batch_tokens = 8192;  ///< tokens of a forward pass (at least one window)
  std::optional<double> skip;        ///< AttentionPlan::skip; nothing: the default of the type
  bool crop = true;                  ///< fixed-target: also the L_train windows
  /// Changes no figure where keys are gathered. The recall task, which looks at attention, always goes by batches.
  SequenceParallel sequence_parallel = SequenceParallel::kAuto;
  /// How ranks that share sequences come by each other's keys. In a ring figures are those of one rank up to rounding.
  SequenceExchange sequence_exchange = SequenceExchange::kGather;
};

/// fixed-target and paper: L_train, then doubled while at least half of the documents that hold L_train tokens are long enough,
/// at most 64 × L_train. labels: the lengths that documents have. Throws Error(kData) when no document is long enough.
std::vector<std::int64_t> default_lengths(const EvalCorpus& corpus, Protocol protocol, std::int64_t train_length);

/// Throws Error(kUsage) for lengths below 2, a stride below L_train, an L_train that nobody knows, and methods that the model
/// cannot take; Error(kData) when no document is long enough or there is no [MASK]; Error(kIo) when memory will not do. All
/// `ranks` call with the same arguments and get the same evaluation, that of one rank but for its seconds (and rounding, where
/// keys travel in a ring).
Evaluation evaluate(const Model& model, const EvalCorpus& corpus, const EvalOptions& options, Communicator& ranks = one_rank());

/// Bytes that a forward pass over `batch` windows of `length` tokens with `rows` rows of logits needs at most, parameters
/// included; of each rank, where `ranks` share the windows by `exchange`.
std::int64_t forecast_bytes(const ModelConfig& config, DType dtype, std::int64_t batch, std::int64_t length, std::int64_t rows,
                            int ranks = 1, SequenceExchange exchange = SequenceExchange::kGather);

}  // namespace gau
