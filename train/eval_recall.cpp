// Finds the facts of queries, and sums up by distance what a model made of them.
#include "train/eval_recall.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "autograd/ops.h"
#include "train/attention_stats.h"

namespace gau {
namespace {

/// Upper ends of the ranges of distances; the last one holds all that is farther.
constexpr std::int64_t kDistances[] = {1, 32, 64, 256, 1024, 4096, std::numeric_limits<std::int64_t>::max()};

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Sums over the queries of one range.
struct RecallSums {
  std::int64_t queries = 0;
  double correct = 0, loss = 0, highest = 0, last = 0;
};

}  // namespace

std::vector<std::vector<std::int32_t>> answer_choices(const std::vector<std::string>& vocabulary) {
  std::map<std::string, std::vector<std::int32_t>> classes;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const std::size_t colon = vocabulary[id].find(':');
    if (colon == std::string::npos || !is_number(vocabulary[id].substr(colon + 1))) continue;
    const std::string name = vocabulary[id].substr(0, colon);
    if (is_number(name)) classes[name].push_back(static_cast<std::int32_t>(id));
  }
  std::vector<std::vector<std::int32_t>> choices(vocabulary.size());
  for (const auto& [name, ids] : classes) {
    for (const std::int32_t id : ids) choices[static_cast<std::size_t>(id)] = ids;
  }
  return choices;
}

RecallProbe::RecallProbe(const ScoringTask& task) : task_(task) {
  find_facts();
  if (!applies_) return;
  choice_loss_.resize(fact_.size());
  highest_attention_.resize(fact_.size());
  last_attention_.resize(fact_.size());
}

void RecallProbe::find_facts() {
  const auto& choices = task_.corpus.answer_choices;
  for (const DocumentTargets& entry : task_.targets.documents) {
    const EvalDocument& document = task_.corpus.documents[static_cast<std::size_t>(entry.document)];
    const auto& tokens = document.tokens;
    for (const std::int64_t position : entry.positions) {
      const std::int32_t label = document.labels.empty() ? -1 : document.labels[static_cast<std::size_t>(position)];
      const bool has_choices =
          label >= 0 && static_cast<std::size_t>(label) < choices.size() && !choices[static_cast<std::size_t>(label)].empty();
      applies_ = has_choices && std::count(tokens.begin(), tokens.end(), label) == 1;
      if (!applies_) return;
      fact_.push_back(std::find(tokens.begin(), tokens.end(), label) - tokens.begin());
      distance_.push_back(position - fact_.back());
    }
  }
}

RowLosses RecallProbe::score_rows(const WindowBatch& batch, Planner& planner) {
  const Model& model = task_.model;
  const Variable hidden = model.visit_attention(
      batch.inputs, planner,
      [&](std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan) { add_attention(batch, layer, in, plan); });
  const Variable logits = model.logits(Context{}, hidden, task_.length, batch.inputs.rows);
  add_choices(batch, logits.value());
  const ops::CrossEntropy loss = ops::cross_entropy(logits, batch.labels);
  return {loss.row_loss, loss.predicted};
}

void RecallProbe::share() {
  for (std::vector<double>* values : {&choice_loss_, &highest_attention_, &last_attention_}) share_by_target(task_, *values);
}

void RecallProbe::add_attention(const WindowBatch& batch, std::int64_t layer, const AttentionInputs& in,
                                const AttentionPlan& plan) {
  const auto rows = batch.inputs.rows.span<std::int32_t>().first(batch.target.size());
  const bool last = layer + 1 == task_.model.config().layers;
  // Each row has a target of its own, so threads write to different elements.
  for_attention_rows(in, plan, [&](const AttentionRow& row) {
    const auto flat = static_cast<std::int32_t>(row.sequence * task_.length + row.position);
    const auto m = std::lower_bound(rows.begin(), rows.end(), flat) - rows.begin();
    const auto target = static_cast<std::size_t>(batch.target[static_cast<std::size_t>(m)]);
    const double weight = row.weights[static_cast<std::size_t>(fact_[target])];
    highest_attention_[target] = std::max(layer == 0 ? 0 : highest_attention_[target], weight);
    if (last) last_attention_[target] = weight;
  });
}

void RecallProbe::add_choices(const WindowBatch& batch, const Tensor& logits) {
  const std::int64_t vocabulary = logits.dim(1);
  const auto labels = batch.labels.span<std::int32_t>();
  for (std::size_t m = 0; m < batch.target.size(); ++m) {
    const std::int64_t row = static_cast<std::int64_t>(m) * vocabulary;
    const auto& choices = task_.corpus.answer_choices[static_cast<std::size_t>(labels[m])];
    double most = -std::numeric_limits<double>::infinity();
    for (const std::int32_t id : choices) most = std::max(most, logits.at(row + id));
    double sum = 0;
    for (const std::int32_t id : choices) sum += std::exp(logits.at(row + id) - most);
    choice_loss_[static_cast<std::size_t>(batch.target[m])] = most + std::log(sum) - logits.at(row + labels[m]);
  }
}

std::vector<RecallRow> RecallProbe::rows(const std::string& method, const TargetScores& scores) const {
  std::vector<RecallRow> rows;
  for (const RecallSide side : {RecallSide::kBoth, RecallSide::kLeft, RecallSide::kRight}) {
    const auto add = [&](std::int64_t first, std::int64_t end) {
      RecallSums sums;
      for (std::size_t t = 0; t < distance_.size(); ++t) {
        const std::int64_t distance = std::abs(distance_[t]);
        const RecallSide here = distance_[t] > 0 ? RecallSide::kLeft : RecallSide::kRight;
        if (distance < first || distance > end || (side != RecallSide::kBoth && side != here)) continue;
        ++sums.queries;
        sums.correct += scores.correct[t];
        sums.loss += choice_loss_[t];
        sums.highest += highest_attention_[t];
        sums.last += last_attention_[t];
      }
      if (sums.queries == 0) return;
      const auto n = static_cast<double>(sums.queries);
      const std::int64_t last = std::min(end, task_.length - 1);
      rows.push_back({method, task_.length, side, first, last, sums.queries, sums.correct / n, sums.loss / n, sums.highest / n,
                      sums.last / n});
    };
    add(1, task_.length);
    std::int64_t first = 1;
    for (const std::int64_t end : kDistances) {
      add(first, end);
      if (end >= task_.length - 1) break;
      first = end + 1;
    }
  }
  return rows;
}

}  // namespace gau
