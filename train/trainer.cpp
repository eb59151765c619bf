#include "train/trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "autograd/variable.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "framework/weights_scope.h"
#include "layers/method.h"
#include "layers/planner.h"
#include "train/precision.h"
#include "train/sample_positions.h"
#include "train/schedule.h"
#include "train/skip_option.h"
#include "train/step_operations.h"

namespace gau {

namespace {

constexpr std::int64_t kFigureSequences = 4;

ModelConfig model_config(const Config& config, const Corpus& corpus) {
  ModelConfig model = config.model;
  const std::int64_t vocabulary = corpus.vocabulary().size();
  check(model.vocab_size == 0 || model.vocab_size == vocabulary, ExitCode::kData,
        "[model] vocab_size = {} but the vocabulary of {} has {} entries: leave vocab_size out", model.vocab_size,
        corpus.path(), vocabulary);
  model.vocab_size = vocabulary;
  model.pad_id = corpus.special().pad;
  return model;
}

LoaderOptions loader_options(const Config& config, bool fixed) {
  LoaderOptions options;
  options.label_mode = config.data.masking;
  options.length = config.data.length;
  options.mask_prob = config.data.mask_prob;
  options.whole_word = config.data.whole_word;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.fixed_masks = fixed;
  if (!fixed) options.first_chunk = first_chunk(*resolve(Method{}, config.model).position, options);
  return options;
}

// What a rank updates: everything, or its slice of every bucket.
std::vector<Range> owned_elements(const Config& config, const BucketPlan& buckets, int rank) {
  std::vector<Range> owned;
  if (!config.train.zero || buckets.ranks() == 1) return owned;
  for (std::int64_t i = 0; i < buckets.buckets(); ++i) owned.push_back(buckets.slice(i, rank));
  return owned;
}

DType wire_type(const Config& config, DType gradients) { return config.train.wire == DType::kBF16 ? DType::kBF16 : gradients; }

}  // namespace

void LossSums::add(const MaskedLoss& part, std::int64_t tokens_read) {
  loss += part.sum.value().item();
  count += part.count;
  correct += part.correct;
  tokens += tokens_read;
}

void LossSums::add(const LossSums& part) {
  loss += part.loss;
  count += part.count;
  correct += part.correct;
  tokens += part.tokens;
}

double LossSums::mean_loss() const {
  return count ? loss / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

double LossSums::accuracy() const {
  return count ? static_cast<double>(correct) / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

ShardPlan ShardPlan::of(const TrainConfig& train, int rank, int ranks) {
  const bool tree =
      train.reduce == ReduceOrder::kTree && ranks <= train.shards && std::has_single_bit(static_cast<unsigned>(ranks));
  if (!tree) return {ReduceOrder::kRank, ranks, rank, rank + 1};
  const Range local = part_of(train.shards, rank, ranks);
  return {ReduceOrder::kTree, train.shards, local.begin, local.end};
}

Trainer::Trainer(const Config& config, const Corpus& corpus, Communicator& ranks)
    : config_(config),
      ranks_(ranks),
      group_(group_of(config.train, ranks)),
      plan_(ShardPlan::of(config.train, ranks.rank() / group_.count, groups())),
      model_(model_config(config, corpus), storage_type(config.train.dtype)),
      buckets_(model_.parameters().size(), config.train.bucket, ranks.size()),
      optimizer_(config.optim, model_.parameters(), owned_elements(config, buckets_, ranks.rank())),
      planner_(model_.config(), Method{}, model_.dtype()),
      loader_(corpus, Split::kTrain, loader_options(config, false)),
      tree_(local_shards()),
      exchange_(ranks, model_.parameters().gradients(), buckets_, plan_.order, wire_type(config, model_.dtype()),
                group_.count) {
  if (const auto skip = parse_skip(config.train.skip).skip) planner_.set_skip(*skip);
  if (corpus.tokens_of(Split::kValid) > 0) {
    validation_ = std::make_unique<Loader>(corpus, Split::kValid, loader_options(config, true));
  }
  if (plan_.order != config.train.reduce && ranks.rank() == 0) {
    log::warn(
        "{} {} are no power of two up to [train] shards = {}: sums follow the order of ranks, equal to those of one rank "
        "up to rounding alone",
        groups(), group_.shared() ? "groups of ranks" : "ranks", config.train.shards);
  }
}

Trainer::~Trainer() = default;

RankGroup Trainer::group_of(const TrainConfig& train, Communicator& ranks) {
  check(ranks.size() % train.sequence_parallel == 0, ExitCode::kUsage,
        "[train] sequence_parallel = {} does not divide the number of ranks, {}: start a multiple of it, or change it",
        train.sequence_parallel, ranks.size());
  return RankGroup::of(ranks, static_cast<int>(train.sequence_parallel), train.sequence_exchange);
}

// Batches in the order in which accumulate() takes them: shard by shard, each shard's part of every micro-step.
std::unique_ptr<Prefetcher> Trainer::prefetch_from(std::int64_t step) const {
  std::int64_t index = plan_.first, micro = -1;
  const auto next = [this, step, index, micro]() mutable -> std::optional<BatchSpan> {
    for (;;) {
      if (++micro == config_.optim.accumulate) {
        micro = 0;
        if (++index == plan_.last) {
          index = plan_.first;
          ++step;
        }
      }
      if (step >= config_.optim.steps) return std::nullopt;
      const Range part = shard(index);
      if (part.size() == 0) continue;
      const std::int64_t first = (step * config_.optim.accumulate + micro) * config_.data.batch + part.begin;
      return BatchSpan{static_cast<std::uint64_t>(first), part.size()};
    }
  };
  return std::make_unique<Prefetcher>(loader_, next, 4);
}

ModelInputs Trainer::inputs_of(const MaskedBatch& batch) {
  ModelInputs inputs;
  inputs.ids = batch.ids;
  inputs.key_mask = batch.key_mask;
  inputs.rows = batch.rows;
  return inputs;
}

// A shard's last backward: gradients that are final are summed while the caches still hold them. Those of the last shard
// complete the sum of the local shards and set out, and messages advance after each op and inside long ones.
void Trainer::backward_and_sum(const Variable& loss, bool last_shard) {
  BackwardHooks hooks;
  hooks.leaf_done = [this, last_shard](const Tensor& gradient) {
    const auto& list = model_.parameters().list();
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const Parameter& p) { return p.variable.grad().same_storage(gradient); });
    if (at == list.end()) return;
    add_to_sum(*at, last_shard);
    finished_[static_cast<std::size_t>(at - list.begin())] = 1;
  };
  if (!last_shard || ranks_.size() == 1) return backward(loss, hooks);
  hooks.after_op = [this] { exchange_.progress(); };
  const PollScope poll([this] { exchange_.progress(); });
  backward(loss, hooks);
}

void Trainer::add_to_sum(const Parameter& parameter, bool last_shard) {
  const Range elements{parameter.offset, parameter.offset + parameter.shape.size()};
  tree_.add(model_.parameters().gradients(), elements);
  if (last_shard) exchange_.ready(elements);
}

// What no backward told of: everything, where a shard or its last micro-step had nothing to learn from.
void Trainer::finish_shard(bool last_shard) {
  model_.parameters().settle_gradients();
  const auto& list = model_.parameters().list();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!finished_[i]) add_to_sum(list[i], last_shard);
  }
  tree_.finish_shard();
}

LossSums Trainer::run_shard(Context context, std::int64_t index) {
  const Range part = shard(index);
  LossSums sums;
  for (std::int64_t micro = 0; part.size() > 0 && micro < config_.optim.accumulate; ++micro) {
    const std::optional<MaskedBatch> batch = prefetcher_->next();
    check(batch.has_value(), ExitCode::kData, "training: the data ended at step {}", context.step + 1);
    if (batch->masked == 0) {
      sums.tokens += batch->tokens;
      continue;
    }
    context.first_sample = static_cast<std::uint64_t>(micro * config_.data.batch + part.begin);
    ModelInputs inputs = inputs_of(*batch);
    inputs.positions = sample_positions(*planner_.method().position, loader_, *batch);
    const MaskedLoss loss = model_.masked_loss(context, inputs, batch->labels, planner_);
    if (micro + 1 == config_.optim.accumulate) {
      backward_and_sum(loss.sum, index + 1 == plan_.last);
    } else {
      backward(loss.sum);
    }
    sums.add(loss, batch->tokens);
  }
  return sums;
}

std::vector<Trainer::ShardReport> Trainer::accumulate(std::int64_t step) {
  Context context;
  context.training = true;
  context.seed = static_cast<std::uint64_t>(config_.train.seed);
  context.step = static_cast<std::uint64_t>(step);
  context.group = group_;
  context.cosine_scale = cosine_scale(config_.model.attention, config_.optim.steps, step);
  FlatParameters& parameters = model_.parameters();
  // A copy of a weight pays from the second pass on.
  std::optional<WeightsScope> weights;
  if (local_shards() * config_.optim.accumulate > 1) weights.emplace(parameters.values());
  exchange_.begin(step);
  std::vector<ShardReport> reports;
  for (std::int64_t s = plan_.first; s < plan_.last; ++s) {
    finished_.assign(parameters.list().size(), 0);
    parameters.restart_gradients(tree_.next(parameters.gradients()));
    reports.push_back({run_shard(context, s)});
    finish_shard(s + 1 == plan_.last);
  }
  return reports;
}

// By shard, of all ranks. Every rank has as many; those of a group tell of the same ones.
std::vector<Trainer::ShardReport> Trainer::reports_of_all(std::vector<ShardReport> mine, std::int64_t step) {
  const std::size_t local = mine.size();
  std::vector<ShardReport> told(local * static_cast<std::size_t>(ranks_.size()));
  ranks_.all_gather({MessageKind::kControl, step}, std::as_bytes(std::span(std::as_const(mine))),
                    std::as_writable_bytes(std::span(told)));
  std::vector<ShardReport> all;
  const auto sharing = static_cast<std::size_t>(group_.count);
  for (std::size_t i = 0; i < told.size(); ++i) {
    const std::size_t rank = i / local;
    if (rank % sharing == 0) {
      all.push_back(told[i]);
    } else {
      all[rank / sharing * local + i % local].flags |= told[i].flags;
    }
  }
  return all;
}

StepReport Trainer::step(std::int64_t step, const std::function<std::uint32_t()>& flags) {
  if (step != next_step_) prefetcher_ = prefetch_from(step);
  next_step_ = step + 1;

  StepReport report;
  report.step = step;
  report.learning_rate = learning_rate(config_.optim, step);
  std::vector<ShardReport> mine = accumulate(step);
  const auto computed = std::chrono::steady_clock::now();
  exchange_.finish();
  report.waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - computed).count();
  const std::uint32_t asked = flags ? flags() : 0;
  for (ShardReport& shard : mine) shard.flags = asked;
  const std::vector<ShardReport> all = reports_of_all(std::move(mine), step);
  for (const ShardReport& shard : all) {
    report.sums.add(shard.sums);
    report.flags |= shard.flags;
  }
  if (report.sums.count == 0) {
    report.skipped = "no token was masked";
    return report;
  }
  const double tokens = static_cast<double>(report.sums.count);
  report.gradient_norm = gradient_norm(model_.parameters()) / tokens;
  if (!std::isfinite(report.gradient_norm) || !std::isfinite(report.sums.loss)) {
    report.skipped = non_finite_reason(all);
    report.non_finite = true;
    return report;
  }
  Optimizer::Share share;
  if (config_.train.zero && ranks_.size() > 1)
    share = [&](Tensor flat) { share_slices(ranks_, flat, buckets_, {MessageKind::kParameters, step}); };
  optimizer_.apply(report.learning_rate, clip_factor(report.gradient_norm, config_.optim.clip) / tokens, share);
  return report;
}

std::pair<Tensor, Tensor> Trainer::moments(const std::vector<Range>& wanted) const {
  const Tensor &first = optimizer_.first(), &second = optimizer_.second();
  const Range mine = wanted[static_cast<std::size_t>(ranks_.rank())];
  if (first.size() == parameters())
    return {first.segment(mine.begin, {mine.size()}), second.segment(mine.begin, {mine.size()})};
  return {collect_slices(ranks_, first, buckets_, wanted, next_step_),
          collect_slices(ranks_, second, buckets_, wanted, next_step_)};
}

std::string Trainer::non_finite_reason(const std::vector<ShardReport>& reports) const {
  std::string reason = "the loss or the norm of the gradient is not finite";
  const std::int64_t at = kernels::first_non_finite(model_.parameters().gradients());
  for (const Parameter& parameter : model_.parameters().list()) {
    if (at >= parameter.offset && at < parameter.offset + parameter.shape.size()) {
      reason = fmt::format("the gradient of {} is not finite at element {}", parameter.name, at - parameter.offset);
    }
  }
  const auto bad =
      std::find_if(reports.begin(), reports.end(), [](const ShardReport& r) { return !std::isfinite(r.sums.loss); });
  if (ranks_.size() == 1 || bad == reports.end()) return reason;
  const auto rank = static_cast<int>((bad - reports.begin()) / local_shards()) * group_.count;
  return fmt::format("{}; so is the loss of {}", reason, ranks_.describe(rank));
}

LossSums Trainer::validate_batch(std::int64_t index, std::int64_t count) const {
  const std::int64_t windows = validation_->windows();
  const std::int64_t first = index * windows / count, next = (index + 1) * windows / count;
  const MaskedBatch batch = validation_->batch(static_cast<std::uint64_t>(first), std::min(config_.data.batch, next - first));
  Context context;
  context.group = group_;
  LossSums sums;
  if (batch.masked > 0) sums.add(model_.masked_loss(context, inputs_of(batch), batch.labels, planner_), batch.tokens);
  return sums;
}

// Batches go to ranks, or groups of them, in turn, and their sums are added in order on all of them.
LossSums Trainer::validate(std::int64_t batches) const {
  NoGrad no_grad;
  const WeightsScope weights(model_.parameters().values());
  const std::int64_t count = std::min(batches, (validation_->windows() + config_.data.batch - 1) / config_.data.batch);
  LossSums sums;
  const std::int64_t group = ranks_.rank() / group_.count;
  for (std::int64_t first = 0; first < count; first += groups()) {
    LossSums mine;
    if (first + group < count) mine = validate_batch(first + group, count);
    const std::vector<LossSums> parts = ranks_.all_gather({MessageKind::kEvaluation, next_step_, first}, mine);
    for (std::size_t rank = 0; rank < parts.size(); rank += static_cast<std::size_t>(group_.count)) sums.add(parts[rank]);
  }
  return sums;
}

std::vector<RowFigures> Trainer::attention_figures() const {
  const Loader& loader = validation_ ? *validation_ : loader_;
  const MaskedBatch batch = loader.batch(0, std::min<std::int64_t>(kFigureSequences, loader.windows()));
  ModelInputs inputs = inputs_of(batch);
  inputs.rows = {};
  std::vector<RowFigures> means;
  model_.visit_attention(inputs, planner_, [&](std::int64_t, const AttentionInputs& in, const AttentionPlan& plan) {
    means.push_back(mean_of(row_figures(in, plan)));
  });
  return means;
}

double Trainer::step_operations(std::int64_t masked) const {
  const auto tokens = static_cast<double>(config_.data.batch * config_.optim.accumulate * config_.data.length);
  return gau::step_operations(model_.config(), tokens, config_.data.length, static_cast<double>(masked));
}

}  // namespace gau
