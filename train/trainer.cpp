#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/variable.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/method.h"
#include "layers/planner.h"
#include "train/precision.h"
#include "train/sample_positions.h"
#include "train/schedule.h"

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

}  // namespace

void LossSums::add(const MaskedLoss& part, std::int64_t tokens_read) {
  loss += part.sum.value().item();
  count += part.count;
  correct += part.correct;
  tokens += tokens_read;
}

double LossSums::mean_loss() const {
  return count ? loss / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

double LossSums::accuracy() const {
  return count ? static_cast<double>(correct) / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

Trainer::Trainer(const Config& config, const Corpus& corpus)
    : config_(config),
      model_(model_config(config, corpus), storage_type(config.train.dtype)),
      optimizer_(config.optim, model_.parameters()),
      planner_(model_.config(), Method{}, model_.dtype()),
      loader_(corpus, Split::kTrain, loader_options(config, false)),
      tree_(config.train.shards) {
  if (corpus.tokens_of(Split::kValid) > 0) {
    validation_ = std::make_unique<Loader>(corpus, Split::kValid, loader_options(config, true));
  }
}

Trainer::~Trainer() = default;

Trainer::Shard Trainer::shard(std::int64_t index) const {
  const std::int64_t batch = config_.data.batch, shards = config_.train.shards;
  return {index * batch / shards, (index + 1) * batch / shards};
}

// Batches in the order in which accumulate() takes them: shard by shard, each shard's part of every micro-step.
std::unique_ptr<Prefetcher> Trainer::prefetch_from(std::int64_t step) const {
  std::int64_t index = 0, micro = -1;
  const auto next = [this, step, index, micro]() mutable -> std::optional<BatchSpan> {
    for (;;) {
      if (++micro == config_.optim.accumulate) {
        micro = 0;
        if (++index == config_.train.shards) {
          index = 0;
          ++step;
        }
      }
      if (step >= config_.optim.steps) return std::nullopt;
      const Shard part = shard(index);
      if (part.begin == part.end) continue;
      const std::int64_t first = (step * config_.optim.accumulate + micro) * config_.data.batch + part.begin;
      return BatchSpan{static_cast<std::uint64_t>(first), part.end - part.begin};
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

LossSums Trainer::accumulate(std::int64_t step) {
  Context context;
  context.training = true;
  context.seed = static_cast<std::uint64_t>(config_.train.seed);
  context.step = static_cast<std::uint64_t>(step);
  context.cosine_scale = cosine_scale(config_.model.attention, config_.optim.steps, step);
  LossSums sums;
  for (std::int64_t s = 0; s < config_.train.shards; ++s) {
    model_.parameters().zero_gradients();
    const Shard part = shard(s);
    for (std::int64_t micro = 0; part.begin < part.end && micro < config_.optim.accumulate; ++micro) {
      const std::optional<MaskedBatch> batch = prefetcher_->next();
      check(batch.has_value(), ExitCode::kData, "training: the data ended at step {}", step + 1);
      if (batch->masked == 0) {
        sums.tokens += batch->tokens;
        continue;
      }
      context.first_sample = static_cast<std::uint64_t>(micro * config_.data.batch + part.begin);
      ModelInputs inputs = inputs_of(*batch);
      inputs.positions = sample_positions(*planner_.method().position, loader_, *batch);
      const MaskedLoss loss = model_.masked_loss(context, inputs, batch->labels, planner_);
      backward(loss.sum);
      sums.add(loss, batch->tokens);
    }
    tree_.add(model_.parameters().gradients());
  }
  return sums;
}

StepReport Trainer::step(std::int64_t step) {
  if (step != next_step_) prefetcher_ = prefetch_from(step);
  next_step_ = step + 1;

  StepReport report;
  report.step = step;
  report.learning_rate = learning_rate(config_.optim, step);
  report.sums = accumulate(step);
  if (report.sums.count == 0) {
    report.skipped = "no token was masked";
    return report;
  }
  const double tokens = static_cast<double>(report.sums.count);
  report.gradient_norm = gradient_norm(model_.parameters()) / tokens;
  if (!std::isfinite(report.gradient_norm) || !std::isfinite(report.sums.loss)) {
    report.skipped = non_finite_reason();
    report.non_finite = true;
    return report;
  }
  optimizer_.apply(report.learning_rate, clip_factor(report.gradient_norm, config_.optim.clip) / tokens);
  return report;
}

std::string Trainer::non_finite_reason() const {
  const std::int64_t at = kernels::first_non_finite(model_.parameters().gradients());
  for (const Parameter& parameter : model_.parameters().list()) {
    if (at >= parameter.offset && at < parameter.offset + parameter.shape.size()) {
      return fmt::format("the gradient of {} is not finite at element {}", parameter.name, at - parameter.offset);
    }
  }
  return "the loss or the norm of the gradient is not finite";
}

LossSums Trainer::validate(std::int64_t batches) const {
  NoGrad no_grad;
  LossSums sums;
  const std::int64_t windows = validation_->windows();
  const std::int64_t count = std::min(batches, (windows + config_.data.batch - 1) / config_.data.batch);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i * windows / count, next = (i + 1) * windows / count;
    const MaskedBatch batch = validation_->batch(static_cast<std::uint64_t>(first), std::min(config_.data.batch, next - first));
    if (batch.masked == 0) continue;
    sums.add(model_.masked_loss({}, inputs_of(batch), batch.labels, planner_), batch.tokens);
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
  const ModelConfig& m = model_.config();
  const double tokens = static_cast<double>(config_.data.batch * config_.optim.accumulate * config_.data.length);
  const double h = static_cast<double>(m.hidden), e = static_cast<double>(m.intermediate), d = static_cast<double>(m.key_size);
  const double length = static_cast<double>(config_.data.length), rows = static_cast<double>(masked);
  const double all = 2 * tokens * (h * (2 * e + d) + e * h + length * (d + e));
  // The last layer's gate, queries, weighted sum and output projection are computed for masked rows alone.
  const double last = 2 * tokens * h * (e + d) + 2 * rows * (h * e + e * h + length * (d + e));
  const double head = 2 * rows * h * static_cast<double>(m.vocab_size);
  return 3 * (static_cast<double>(m.layers - 1) * all + last + head);
}

}  // namespace gau
