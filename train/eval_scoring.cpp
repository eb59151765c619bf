// Batches of windows through the model. Target rows are padded to a multiple of 32, since each new shape costs the matrix
// library a new primitive.
#include "train/eval_scoring.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "framework/attention_block_rows.h"
#include "train/attention_stats.h"

namespace gau {
namespace {

constexpr std::int64_t kRowMultiple = 32;
// What the entropy is measured on: windows of so many tokens together, at least one, and so many rows of each.
constexpr std::int64_t kEntropyTokens = 2048;
constexpr std::int64_t kEntropyRows = 128;

std::int32_t label_of(const EvalDocument& document, std::int64_t position) {
  const auto p = static_cast<std::size_t>(position);
  return document.labels.empty() ? document.tokens[p] : document.labels[p];
}

void mask_window(const ScoringTask& task, const DocumentTargets& entry, const EvalWindow& window, std::int32_t* ids) {
  if (task.mask == MaskMode::kNone) return;
  auto first = entry.positions.begin() + window.first;
  auto last = first + window.count;
  if (task.mask == MaskMode::kAll) {
    first = std::lower_bound(entry.positions.begin(), entry.positions.end(), window.start);
    last = std::lower_bound(first, entry.positions.end(), window.start + task.length);
  }
  for (; first != last; ++first) ids[*first - window.start] = task.corpus.mask_id;
}

WindowBatch make_batch(const ScoringTask& task, std::span<const EvalWindow> windows) {
  const auto batch = static_cast<std::int64_t>(windows.size());
  WindowBatch out;
  out.inputs.ids = Tensor::empty({batch, task.length}, DType::kI32);
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> labels;
  for (std::int64_t b = 0; b < batch; ++b) {
    const EvalWindow& window = windows[static_cast<std::size_t>(b)];
    const DocumentTargets& entry = task.targets.documents[static_cast<std::size_t>(window.entry)];
    const EvalDocument& document = task.corpus.documents[static_cast<std::size_t>(entry.document)];
    std::int32_t* ids = out.inputs.ids.data<std::int32_t>() + b * task.length;
    std::copy_n(document.tokens.begin() + window.start, task.length, ids);
    mask_window(task, entry, window, ids);
    for (std::int64_t i = window.first; i < window.first + window.count; ++i) {
      const std::int64_t position = entry.positions[static_cast<std::size_t>(i)];
      rows.push_back(static_cast<std::int32_t>(b * task.length + position - window.start));
      labels.push_back(label_of(document, position));
      out.target.push_back(entry.first + i);
    }
  }
  const std::size_t padded = (rows.size() + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  rows.resize(padded, -1);
  labels.resize(padded, -1);
  out.inputs.rows = Tensor::from(rows, {static_cast<std::int64_t>(padded)});
  out.labels = Tensor::from(labels, {static_cast<std::int64_t>(padded)});
  return out;
}

/// The targets of the batches that `rank` scores, in their order.
std::vector<std::size_t> targets_of(const ScoringTask& task, int rank) {
  const auto step = static_cast<std::size_t>(windows_per_batch(task.batch_tokens, task.length));
  const auto ranks = static_cast<std::size_t>(task.ranks.size());
  std::vector<std::size_t> targets;
  for (std::size_t w = 0; w < task.windows.size(); ++w) {
    if (w / step % ranks != static_cast<std::size_t>(rank)) continue;
    const EvalWindow& window = task.windows[w];
    const std::int64_t first = task.targets.documents[static_cast<std::size_t>(window.entry)].first + window.first;
    for (std::int64_t i = 0; i < window.count; ++i) targets.push_back(static_cast<std::size_t>(first + i));
  }
  return targets;
}

RankGroup group_of(const ScoringTask& task) {
  return task.shared ? RankGroup::of(task.ranks, task.ranks.size(), task.exchange) : RankGroup{};
}

}  // namespace

void share_by_target(const ScoringTask& task, std::vector<double>& values) {
  if (task.ranks.size() == 1 || task.shared) return;
  std::string mine;
  for (const std::size_t target : targets_of(task, task.ranks.rank()))
    mine.append(reinterpret_cast<const char*>(&values[target]), sizeof(double));
  const std::vector<std::string> all = task.ranks.all_gather_text({MessageKind::kEvaluation}, mine);
  for (int rank = 0; rank < task.ranks.size(); ++rank) {
    const char* from = all[static_cast<std::size_t>(rank)].data();
    for (const std::size_t target : targets_of(task, rank)) {
      std::memcpy(&values[target], from, sizeof(double));
      from += sizeof(double);
    }
  }
}

TargetScores score(const ScoringTask& task, Planner& planner, const std::function<void(std::int64_t)>& done,
                   const RowScorer& scorer) {
  const NoGrad no_grad;
  TargetScores scores;
  scores.loss.assign(static_cast<std::size_t>(task.targets.total), std::nan(""));
  std::vector<double> correct(static_cast<std::size_t>(task.targets.total), 0);
  Context context;
  context.group = group_of(task);
  const auto step = static_cast<std::size_t>(windows_per_batch(task.batch_tokens, task.length));
  const auto ranks = static_cast<std::size_t>(task.ranks.size()), rank = static_cast<std::size_t>(task.ranks.rank());
  for (std::size_t first = 0; first < task.windows.size(); first += step) {
    const std::size_t count = std::min(step, task.windows.size() - first);
    done(static_cast<std::int64_t>(count));
    if (!task.shared && first / step % ranks != rank) continue;
    const WindowBatch batch = make_batch(task, std::span(task.windows).subspan(first, count));
    RowLosses loss;
    if (scorer) {
      loss = scorer(batch);
    } else {
      const MaskedLoss all = task.model.masked_loss(context, batch.inputs, batch.labels, planner);
      loss = {all.row_loss, all.predicted};
    }
    const auto row_loss = loss.row_loss.span<double>();
    const auto predicted = loss.predicted.span<std::int32_t>();
    const auto label = batch.labels.span<std::int32_t>();
    for (std::size_t m = 0; m < batch.target.size(); ++m) {
      const auto target = static_cast<std::size_t>(batch.target[m]);
      scores.loss[target] = row_loss[m];
      correct[target] = predicted[m] == label[m];
    }
  }
  share_by_target(task, scores.loss);
  share_by_target(task, correct);
  scores.correct.assign(correct.begin(), correct.end());
  return scores;
}

namespace {

/// Entropies of some rows of one window, in all layers.
struct EntropySum {
  double sum = 0;
  std::int64_t rows = 0;
};

EntropySum window_entropy(const ScoringTask& task, Planner& planner, std::size_t window) {
  EntropySum entropy;
  WindowBatch batch = make_batch(task, std::span(task.windows).subspan(window, 1));
  batch.inputs.rows = spaced_rows(1, task.length, kEntropyRows);
  const auto add = [&](std::int64_t, const AttentionInputs& in, const AttentionPlan& plan) {
    for (const RowFigures& row : row_figures(in, plan)) {
      entropy.sum += row.entropy;
      ++entropy.rows;
    }
  };
  task.model.visit_attention(batch.inputs, planner, add, group_of(task));
  return entropy;
}

}  // namespace

double entropy_of(const ScoringTask& task, Planner& planner) {
  const NoGrad no_grad;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(1, kEntropyTokens / task.length));
  const std::size_t count = std::min(wanted, task.windows.size());
  const auto ranks = static_cast<std::size_t>(task.ranks.size()), rank = static_cast<std::size_t>(task.ranks.rank());
  EntropySum total;
  // Where ranks share a window all its rows fall to one of them, being no more than a block: the sum is in their order.
  static_assert(kEntropyRows <= kAttentionBlockRows);
  for (std::size_t first = 0; first < count; first += task.shared ? 1 : ranks) {
    const std::size_t i = task.shared ? first : first + rank;
    EntropySum mine;
    if (i < count) mine = window_entropy(task, planner, (2 * i + 1) * task.windows.size() / (2 * count));
    for (const EntropySum& part : task.ranks.all_gather({MessageKind::kEvaluation}, mine)) {
      total.sum += part.sum;
      total.rows += part.rows;
    }
  }
  return total.sum / static_cast<double>(total.rows);
}

std::int64_t windows_per_batch(std::int64_t batch_tokens, std::int64_t length) {
  // Rows are numbered in 32 bits.
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
  return std::max<std::int64_t>(1, std::min(batch_tokens, kMostTokens) / length);
}

std::int64_t most_scored(const std::vector<EvalWindow>& windows) {
  std::int64_t most = 0;
  for (const EvalWindow& window : windows) most = std::max(most, window.count);
  return most;
}

}  // namespace gau
