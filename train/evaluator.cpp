// Runs the windows of a protocol through a model and sums up what came out.
#include "train/evaluator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include "framework/attention_block_rows.h"
#include "framework/error.h"
#include "framework/log.h"
#include "framework/weights_scope.h"
#include "train/eval_forecast.h"
#include "train/eval_recall.h"
#include "train/eval_scoring.h"

namespace gau {
namespace {

constexpr std::int64_t kMostDoublings = 6;

std::int64_t token_count(const EvalDocument& document) { return static_cast<std::int64_t>(document.tokens.size()); }

std::int64_t longest_document(const EvalCorpus& corpus) {
  std::int64_t longest = 0;
  for (const EvalDocument& document : corpus.documents) longest = std::max(longest, token_count(document));
  return longest;
}

std::int64_t documents_of_at_least(const EvalCorpus& corpus, std::int64_t tokens) {
  return std::count_if(corpus.documents.begin(), corpus.documents.end(),
                       [&](const EvalDocument& document) { return token_count(document) >= tokens; });
}

/// Numerators and counts by unit.
struct UnitSums {
  std::vector<double> loss, correct, delta, count;
};

UnitSums sum_units(const UnitMap& units, const TargetScores& scores, const TargetScores* crop) {
  const auto n = static_cast<std::size_t>(units.count);
  UnitSums sums{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t t = 0; t < units.unit.size(); ++t) {
    const auto u = static_cast<std::size_t>(units.unit[t]);
    sums.loss[u] += scores.loss[t];
    sums.correct[u] += scores.correct[t];
    sums.count[u] += 1;
    if (crop != nullptr) sums.delta[u] += scores.loss[t] - crop->loss[t];
  }
  return sums;
}

Interval clamped(Interval share) {
  share.low = std::isnan(share.low) ? share.low : std::max(0.0, share.low);
  share.high = std::isnan(share.high) ? share.high : std::min(1.0, share.high);
  return share;
}

/// One row to be made: a method at a length, with its targets and windows.
struct Job {
  std::string name;
  const Method* method = nullptr;
  std::int64_t length = 0;
  const TargetSet* targets = nullptr;
  std::vector<EvalWindow> windows;
  std::int64_t unit_block = 1;  ///< tokens of a block, should documents be too few
  bool is_crop = false;
};

class Evaluator {
 public:
  Evaluator(const Model& model, const EvalCorpus& corpus, const EvalOptions& options, Communicator& ranks)
      : model_(model), corpus_(corpus), options_(options), ranks_(ranks), config_(model.config()) {
    if (options_.train_length > 0) config_.attention.train_length = options_.train_length;
    train_length_ = config_.attention.train_length;
    for (const Method& method : options_.methods) methods_.push_back(resolve(method, config_));
    own_ = resolve(Method{}, config_);
    if (methods_.empty()) methods_.push_back(own_);
    choose_lengths();
    if (options_.protocol != Protocol::kLabels) {
      check(corpus.mask_id >= 0, ExitCode::kData, "{}: its vocabulary has no [MASK]; nothing can be masked", corpus.path);
    }
  }

  Evaluation run() {
    options_.protocol == Protocol::kFixedTarget ? plan_fixed_targets() : plan_by_length();
    check_memory();
    double work = 0;
    for (const Job& job : jobs_) work += work_of(job);
    WorkClock clock(work);
    Evaluation result = describe();
    const WeightsScope weights(model_.parameters().values());
    for (const Job& job : jobs_) result.rows.push_back(row_of(job, clock));
    clock.finish();
    result.recall = std::move(recall_);
    return result;
  }

 private:
  Evaluation describe() const {
    Evaluation result;
    result.model = options_.label;
    result.protocol = name_of(options_.protocol);
    result.corpus = corpus_.path;
    result.split = corpus_.split;
    result.corpus_documents = static_cast<std::int64_t>(corpus_.documents.size());
    for (const EvalDocument& document : corpus_.documents) result.corpus_tokens += token_count(document);
    result.train_length = train_length_;
    result.stride = stride_;
    result.target_limit = options_.targets;
    result.seed = static_cast<std::int64_t>(options_.seed);
    return result;
  }

  void choose_lengths() {
    lengths_ = options_.lengths.empty() ? default_lengths(corpus_, options_.protocol, train_length_) : options_.lengths;
    std::sort(lengths_.begin(), lengths_.end());
    lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
    check(lengths_.front() >= 2, ExitCode::kUsage, "--lengths: {} is too short; a window has at least 2 tokens",
          lengths_.front());
    longest_ = lengths_.back();
    const std::int64_t longest = longest_document(corpus_);
    check(longest >= longest_, ExitCode::kData,
          "{}: no document of the {} split has {} tokens (the longest has {}); give shorter --lengths", corpus_.path,
          corpus_.split, longest_, longest);
  }

  void plan_fixed_targets() {
    check(train_length_ > 0, ExitCode::kUsage, "{}: the model does not say at which length it was trained; give --train-length",
          options_.label);
    stride_ = options_.stride > 0 ? options_.stride : train_length_;
    check(stride_ >= train_length_, ExitCode::kUsage,
          "--stride {}: targets would stand in each other's near context; it must be at least the training length, {}", stride_,
          train_length_);
    // Crop windows need L_train tokens too.
    const std::int64_t needed = std::max(longest_, options_.crop ? train_length_ : 0);
    TargetSet& targets = target_sets_.emplace_back(
        spaced_targets(corpus_.documents, {needed, stride_, options_.targets, options_.seed, corpus_.special_ids}));
    check(targets.total > 0, ExitCode::kData, "{}: no document of the {} split has a target at {} tokens (the longest has {})",
          corpus_.path, corpus_.split, needed, longest_document(corpus_));
    const std::int64_t block = std::max<std::int64_t>(1, longest_ / 2);
    if (options_.crop) {
      jobs_.push_back({kCropMethod, &own_, train_length_, &targets, centred_windows(targets, corpus_.documents, train_length_),
                       block, true});
    }
    for (const Method& method : methods_) {
      for (std::int64_t length : lengths_) {
        jobs_.push_back({method.name, &method, length, &targets, sliding_windows(targets, corpus_.documents, length), block});
      }
    }
  }

  TargetSet targets_at(std::int64_t length) const {
    if (options_.protocol == Protocol::kPaper) {
      return leading_targets(corpus_.documents, length, options_.targets, corpus_.special_ids);
    }
    TargetSet targets = labelled_targets(corpus_.documents, length);
    if (options_.targets > 0) thin(targets, options_.targets);
    return targets;
  }

  /// Protocols whose targets differ from length to length.
  void plan_by_length() {
    const bool paper = options_.protocol == Protocol::kPaper;
    target_sets_.reserve(lengths_.size());
    for (std::int64_t length : lengths_) {
      const TargetSet& targets = target_sets_.emplace_back(targets_at(length));
      check(targets.total > 0, ExitCode::kData, "{}: no {} target at length {} in the {} split", corpus_.path,
            paper ? "usable" : "labelled", length, corpus_.split);
    }
    for (const Method& method : methods_) {
      for (std::size_t l = 0; l < lengths_.size(); ++l) {
        const TargetSet& targets = target_sets_[l];
        jobs_.push_back({method.name, &method, lengths_[l], &targets, paper ? leading_windows(targets) : whole_windows(targets),
                         std::max<std::int64_t>(1, lengths_[l] / 2)});
      }
    }
  }

  MaskMode mask_mode() const {
    switch (options_.protocol) {
      case Protocol::kPaper:
        return MaskMode::kScored;
      case Protocol::kLabels:
        return MaskMode::kNone;
      case Protocol::kFixedTarget:
        break;
    }
    return MaskMode::kAll;
  }

  double work_of(const Job& job) const {
    return static_cast<double>(job.windows.size()) * window_operations(config_, job.length);
  }

  bool is_shared(const Job& job) const {
    if (ranks_.size() == 1 || options_.sequence_parallel == SequenceParallel::kOff) return false;
    // The recall task.
    if (options_.protocol == Protocol::kLabels && !corpus_.answer_choices.empty()) return false;
    if (options_.sequence_parallel == SequenceParallel::kOn) return true;
    const std::int64_t step = windows_per_batch(options_.batch_tokens, job.length);
    const std::int64_t batches = (static_cast<std::int64_t>(job.windows.size()) + step - 1) / step;
    return batches < ranks_.size() && job.length >= ranks_.size() * kAttentionBlockRows;
  }

  void check_memory() const {
    std::int64_t most = 0;
    std::int64_t at = 0;
    for (const Job& job : jobs_) {
      const auto windows = static_cast<std::int64_t>(job.windows.size());
      const std::int64_t batch = std::min(windows, windows_per_batch(options_.batch_tokens, job.length));
      const std::int64_t bytes = forecast_bytes(config_, model_.dtype(), batch, job.length, batch * most_scored(job.windows),
                                                is_shared(job) ? ranks_.size() : 1, options_.sequence_exchange);
      if (bytes <= most) continue;
      most = bytes;
      at = job.length;
    }
    if (at > train_length_) log::info("{}: at most {} of memory, at length {}", options_.label, bytes_text(most), at);
    const std::optional<std::int64_t> available = available_memory();
    check(!available || most <= *available, ExitCode::kIo,
          "evaluation at length {} may need {} of memory, {} are available; give shorter --lengths or fewer --targets{}", at,
          bytes_text(most), bytes_text(available.value_or(0)),
          ranks_.size() > 1 && options_.sequence_parallel != SequenceParallel::kOn ? ", or --sequence-parallel on" : "");
  }

  EvalRow row_of(const Job& job, WorkClock& clock) {
    const auto begin = std::chrono::steady_clock::now();
    Planner planner(config_, *job.method, model_.dtype());
    if (options_.skip) planner.set_skip(*options_.skip);
    const ScoringTask task{model_,
                           corpus_,
                           *job.targets,
                           job.windows,
                           job.length,
                           mask_mode(),
                           options_.batch_tokens,
                           ranks_,
                           is_shared(job),
                           options_.sequence_exchange};
    const double per_window = window_operations(config_, job.length);
    const std::string name = fmt::format("{} {}", job.name, job.length);
    const auto done = [&](std::int64_t windows) { clock.advance(static_cast<double>(windows) * per_window, name); };
    RecallProbe probe(task);
    const RowScorer with_probe = [&](const WindowBatch& batch) { return probe.score_rows(batch, planner); };
    const TargetScores scores = score(task, planner, done, probe.applies() ? with_probe : RowScorer{});
    if (probe.applies()) {
      probe.share();
      for (RecallRow& recall : probe.rows(job.name, scores)) recall_.push_back(std::move(recall));
    }
    EvalRow row = summarise(job, scores);
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    row.entropy = entropy_of(task, planner);
    if (job.is_crop) crop_ = scores;
    if (std::isnan(row.loss.value) && ranks_.rank() == 0) log::warn("{}: {}: the loss is not a number", options_.label, name);
    clock.row_done(fmt::format("{}: {} at {}: perplexity {:.4g}, accuracy {:.1f} %, {:.1f} s", options_.label, job.name,
                               job.length, row.perplexity(), 100 * row.accuracy.value, row.seconds));
    return row;
  }

  EvalRow summarise(const Job& job, const TargetScores& scores) const {
    const UnitMap units = map_units(*job.targets, job.unit_block);
    const bool paired = crop_ && !job.is_crop;
    const UnitSums sums = sum_units(units, scores, paired ? &*crop_ : nullptr);
    EvalRow row;
    row.method = job.name;
    row.length = job.length;
    row.targets = job.targets->total;
    row.documents = static_cast<std::int64_t>(job.targets->documents.size());
    row.skipped = job.targets->skipped;
    row.loss = ratio_interval(sums.loss, sums.count, options_.seed);
    row.accuracy = clamped(ratio_interval(sums.correct, sums.count, options_.seed));
    if (paired) row.delta = ratio_interval(sums.delta, sums.count, options_.seed);
    row.intervals = interval_label(units.blocks ? UnitKind::kBlocks : UnitKind::kDocuments, units.count);
    return row;
  }

  const Model& model_;
  const EvalCorpus& corpus_;
  const EvalOptions& options_;
  Communicator& ranks_;
  ModelConfig config_;  ///< with the L_train that holds here
  std::int64_t train_length_ = 0;
  std::int64_t stride_ = 0;
  std::int64_t longest_ = 0;
  std::vector<std::int64_t> lengths_;
  std::vector<Method> methods_;
  Method own_;
  std::vector<TargetSet> target_sets_;
  std::vector<Job> jobs_;
  std::optional<TargetScores> crop_;
  std::vector<RecallRow> recall_;
};

}  // namespace

SequenceParallel parse_sequence_parallel(const std::string& name) {
  if (name == "auto") return SequenceParallel::kAuto;
  if (name == "on") return SequenceParallel::kOn;
  check(name == "off", ExitCode::kUsage, "--sequence-parallel {}: say auto, on or off", name);
  return SequenceParallel::kOff;
}

Protocol parse_protocol(const std::string& name) {
  for (Protocol protocol : {Protocol::kFixedTarget, Protocol::kPaper, Protocol::kLabels}) {
    if (name == name_of(protocol)) return protocol;
  }
  fail(ExitCode::kUsage, "--protocol {}: unknown; known are fixed-target, paper and labels", name);
}

const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kFixedTarget:
      return "fixed-target";
    case Protocol::kPaper:
      return "paper";
    case Protocol::kLabels:
      return "labels";
  }
  return "?";
}

std::vector<std::int64_t> default_lengths(const EvalCorpus& corpus, Protocol protocol, std::int64_t train_length) {
  if (protocol == Protocol::kLabels) {
    std::set<std::int64_t> lengths;
    for (const EvalDocument& document : corpus.documents) {
      if (token_count(document) >= 2) lengths.insert(token_count(document));
    }
    check(!lengths.empty(), ExitCode::kData, "{}: the {} split has no documents", corpus.path, corpus.split);
    return {lengths.begin(), lengths.end()};
  }
  check(train_length > 0, ExitCode::kUsage,
        "the model does not say at which length it was trained; give --lengths and --train-length");
  const std::int64_t usable = documents_of_at_least(corpus, train_length);
  check(usable > 0, ExitCode::kData,
        "{}: no document of the {} split has the {} tokens of the training length (the longest has {})", corpus.path,
        corpus.split, train_length, longest_document(corpus));
  std::vector<std::int64_t> lengths{std::max<std::int64_t>(2, train_length)};
  for (std::int64_t doubling = 0; doubling < kMostDoublings; ++doubling) {
    if (2 * documents_of_at_least(corpus, 2 * lengths.back()) < usable) break;
    lengths.push_back(2 * lengths.back());
  }
  return lengths;
}

Evaluation evaluate(const Model& model, const EvalCorpus& corpus, const EvalOptions& options, Communicator& ranks) {
  return Evaluator(model, corpus, options, ranks).run();
}

}  // namespace gau
