// Recall at a distance: how well a model finds the one token in its context that answers a question, by how far away it is.
//
// The corpus of the recall task labels each query with its fact, a token "class:value" that stands once in the document, so its
// distance is known from the tokens. For each query: whether the fact is the likeliest token of all; its cross-entropy among
// the facts of its class alone (guessing: ln 16), which leaves out what it costs to know the class; and the attention weight
// from query to fact in each layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/eval_scoring.h"
#include "train/evaluation.h"

namespace gau {

/// By token id: the tokens that a question with this answer may be answered with, itself among them: those of its class, told
/// by names "class:value" of digits. Empty for other tokens.
std::vector<std::vector<std::int32_t>> answer_choices(const std::vector<std::string>& vocabulary);

/// Gathers what one method does with the targets of one length.
class RecallProbe {
 public:
  /// Keeps a reference to `task`.
  explicit RecallProbe(const ScoringTask& task);

  /// False when some target is no question of the recall task: its label has no choices, or stands in its document more than
  /// once or not at all. Nothing can be gathered then.
  bool applies() const { return applies_; }
  /// The losses of a batch of whole documents; choices and attention are kept by target.
  RowLosses score_rows(const WindowBatch& batch, Planner& planner);
  /// After the last batch: what other ranks have gathered comes here too.
  void share();
  /// Means by side and distance, all sides and distances first; ranges without a query are left out.
  std::vector<RecallRow> rows(const std::string& method, const TargetScores& scores) const;

 private:
  void find_facts();
  void add_attention(const WindowBatch& batch, std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan);
  void add_choices(const WindowBatch& batch, const Tensor& logits);

  const ScoringTask& task_;
  bool applies_ = true;
  // By target number.
  std::vector<std::int64_t> fact_;         ///< its position in the document
  std::vector<std::int64_t> distance_;     ///< query − fact: positive when the fact is on the left
  std::vector<double> choice_loss_;        ///< nats
  std::vector<double> highest_attention_;  ///< of all layers
  std::vector<double> last_attention_;     ///< of the last layer
};

}  // namespace gau
