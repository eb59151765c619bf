#include "train/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/corpus.h"
#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/init_from.h"
#include "train/machine_rates.h"
#include "train/metrics.h"
#include "train/precision.h"
#include "train/run_checkpoints.h"
#include "train/run_directory.h"
#include "train/start_checks.h"
#include "train/stop_request.h"
#include "train/trainer.h"

namespace gau {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kValidationBatches = 8;   // a validation costs about as much as three steps
constexpr std::int64_t kMostNonFiniteSteps = 5;  // in a row
constexpr double kSelfAttentionLimit = 0.9;
constexpr double kPatience = 10;  // seconds

// What ranks tell each other in the control message of a step.
enum StepFlag : std::uint32_t {
  kStop = 1,    // end after this step
  kSave = 2,    // make a checkpoint
  kSaving = 4,  // this rank's writer is still busy
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// As configured, else OMP_NUM_THREADS, else this rank's share of the machine.
void choose_threads(const Config& config, const Communicator& ranks) {
  if (config.train.threads > 0) return set_threads(static_cast<int>(config.train.threads));
  if (ranks.size() == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  set_threads(default_threads(available_processors(), online, neighbours(ranks).ranks));
}

RunStart start_of(const TrainRequest& request) {
  if (request.resume) return RunStart::kResume;
  return request.overwrite ? RunStart::kOverwrite : RunStart::kFresh;
}

// Of a run whose predecessor is still ending. The other ranks wait for the first one meanwhile, so it must end before they do.
double patience(const TrainRequest& request, const Communicator& ranks) {
  const double timeout = request.config.train.timeout;
  return ranks.size() == 1 || timeout == 0 ? kPatience : std::min(kPatience, timeout / 2);
}

class TrainingRun {
 public:
  TrainingRun(const TrainRequest& request, Communicator& ranks)
      : request_(request),
        ranks_(ranks),
        is_first_(ranks.rank() == 0),
        config_(request.config),
        corpus_(config_.data.corpus),
        corpus_digest_(agreed_digest()),
        trainer_(config_, corpus_, ranks),
        text_(Tokenization::of(corpus_.tokenizer())),
        checkpoints_({trainer_.model(), config_, text_, corpus_digest_}, trainer_, ranks) {
    config_.model = trainer_.model().config();
  }

  TrainResult run() {
    start();
    std::optional<MetricsFile> metrics;
    if (is_first_) metrics.emplace(path("metrics.jsonl"), state_.step);
    Progress progress(config_.optim.steps, config_.train.log_every);
    const auto begin = Clock::now();
    checkpoints_.start_clock();
    flags_ = flags_before_the_first_step();
    try {
      while (state_.step < config_.optim.steps && !(flags_ & kStop)) {
        const StepMetrics line = step(progress);
        if (metrics) {
          metrics->write(line);
          progress.show(line);
        }
        if (checkpoints_.in_flight() && !(flags_ & kSaving)) checkpoints_.publish(progress);
        if (save_is_due()) checkpoints_.begin(state_, progress);
      }
    } catch (...) {
      // Others may not be here, so only a rank alone ends its save.
      if (ranks_.size() == 1) checkpoints_.publish(progress);
      throw;
    }
    checkpoints_.publish(progress);
    checkpoints_.save_last(state_);
    if (metrics) metrics->finish();
    return finish((flags_ & kStop) && state_.step < config_.optim.steps, seconds_since(begin));
  }

 private:
  std::string path(const char* name) const { return (fs::path(config_.train.output) / name).string(); }

  void start() {
    trainer_.model().initialize(static_cast<std::uint64_t>(config_.train.seed));
    const std::optional<Manifest> checkpoint = checkpoints_.open(request_.resume);
    if (checkpoint) {
      resume(*checkpoint);
    } else if (request_.resume) {
      log::info("no checkpoint to resume yet: starting at step 0");
    } else if (!request_.init_from.empty()) {
      init_from(request_.init_from, text_, trainer_.model());
    }
    advise();
    if (!is_first_) return;
    write_file(path("config.toml"), to_toml(config_));
    log::set_file(path("log.txt"));
    describe();
  }

  // Every rank must be about to do the same, with the same data.
  std::uint64_t agreed_digest() {
    ranks_.set_timeout(config_.train.timeout);
    const std::uint64_t digest = corpus_.digest();
    Facts facts = shared_settings(config_);
    facts.emplace_back("data digest", digest_text(digest));
    facts.emplace_back("--resume", request_.resume ? "yes" : "no");
    facts.emplace_back("--overwrite", request_.overwrite ? "yes" : "no");
    facts.emplace_back("--init-from", request_.init_from);
    facts.emplace_back("--check-replicas", std::to_string(request_.check_replicas));
    check_agreement(ranks_, facts);
    return digest;
  }

  void advise() {
    const std::string advice = binding_advice(threads(), available_processors(), ranks_.size());
    if (!advice.empty() && neighbours(ranks_).is_first) log::warn("{}", advice);
  }

  std::uint32_t flags_before_the_first_step() {
    std::uint32_t all = 0;
    for (const std::uint32_t one : ranks_.all_gather(MessageLabel{MessageKind::kControl, state_.step - 1}, own_flags()))
      all |= one;
    return all;
  }

  std::uint32_t own_flags() {
    std::uint32_t flags = 0;
    if (stop_.stop()) flags |= kStop;
    if (stop_.take_save() || checkpoints_.due_by_clock()) flags |= kSave;
    if (checkpoints_.writing()) flags |= kSaving;
    return flags;
  }

  void resume(const Manifest& checkpoint) {
    check_corpus(checkpoint);
    for (const std::string& difference : config_differences(checkpoint.config, config_)) {
      if (is_first_) log::warn("resuming with a changed setting: {}", difference);
    }
    load_checkpoint(checkpoint, trainer_.model(), trainer_.optimizer(), state_);
    checkpoints_.resumed(checkpoint, state_);
    validation_loss_ = state_.validation_loss;
    log::info("resuming {} at step {}", checkpoint.directory, state_.step);
  }

  // The same samples come in the same order only from the same corpus.
  void check_corpus(const Manifest& checkpoint) {
    if (checkpoint.corpus == corpus_digest_) return;
    check(request_.allow_new_data, ExitCode::kData,
          "{}: was trained on a corpus with digest {}, and {} has {}: resume with the corpus of the run, or give "
          "--allow-new-data",
          checkpoint.directory, digest_text(checkpoint.corpus), corpus_.path(), digest_text(corpus_digest_));
    check_vocabulary("--allow-new-data " + checkpoint.directory, read_tokenization(checkpoint.directory + "/model.h5"), text_);
    if (!is_first_) return;
    log::warn("resuming with new data: {} has digest {}, the corpus so far had {}", corpus_.path(), digest_text(corpus_digest_),
              digest_text(checkpoint.corpus));
  }

  void describe() {
    product_rate_ = measured_product_rate(storage_type(config_.train.dtype));
    log::info("corpus {}: {} documents, {} training tokens, vocabulary {}", corpus_.path(), corpus_.documents(),
              corpus_.tokens_of(Split::kTrain), corpus_.vocabulary().size());
    log::info("model: {} layers, {} parameters, {} attention, {}; {} threads, matrix products at {:.0f} GFLOP/s",
              config_.model.layers, trainer_.parameters(), name_of(config_.model.attention.kind), name_of(config_.train.dtype),
              threads(), product_rate_ / 1e9);
    log::info("a loss to compare with: {:.3f} (ln V, guessing), {:.3f} (unigram entropy, guessing by frequency)",
              std::log(static_cast<double>(config_.model.vocab_size)), corpus_.unigram_entropy(Split::kTrain));
    if (!trainer_.has_validation()) {
      log::warn("{} has no validation split: the best checkpoint will be the last one", corpus_.path());
    }
  }

  StepMetrics step(Progress& progress) {
    const auto begin = Clock::now();
    const StepReport report = trainer_.step(state_.step, [this] { return own_flags(); });
    const double seconds = seconds_since(begin);
    flags_ = report.flags;
    ++state_.step;
    compare_replicas();
    state_.validation_loss = std::numeric_limits<double>::quiet_NaN();
    among_best_ = false;
    state_.cursor = static_cast<std::uint64_t>(state_.step * config_.data.batch * config_.optim.accumulate);
    loss_ = report.sums.mean_loss();

    StepMetrics line;
    line.step = state_.step;
    line.loss = loss_;
    line.accuracy = report.sums.accuracy();
    line.learning_rate = report.learning_rate;
    line.gradient_norm = report.gradient_norm;
    line.masked_tokens = report.sums.count;
    line.seconds = seconds;
    if (ranks_.size() > 1) line.waited = report.waited;
    line.tokens_per_second = static_cast<double>(report.sums.tokens) / seconds;
    line.mfu = trainer_.step_operations(report.sums.count) / seconds / (product_rate_ * ranks_.size());
    line.skipped = !report.skipped.empty();
    if (line.skipped) skipped(report, progress);
    non_finite_ = report.non_finite ? non_finite_ + 1 : 0;
    if (non_finite_ == kMostNonFiniteSteps) give_up(report, progress);
    if (state_.step % config_.train.eval_every == 0 || state_.step == config_.optim.steps) validate(line, progress);
    return line;
  }

  void skipped(const StepReport& report, Progress& progress) {
    ++state_.skipped;
    if (!is_first_) return;
    progress.pause();
    log::warn("step {} skipped: {}", state_.step, report.skipped);
  }

  [[noreturn]] void give_up(const StepReport& report, Progress& progress) {
    const nlohmann::ordered_json replay{
        {"step", state_.step},
        {"reason", report.skipped},
        {"seed", config_.train.seed},
        {"first_sample", state_.cursor - static_cast<std::uint64_t>(config_.data.batch * config_.optim.accumulate)},
        {"samples", config_.data.batch * config_.optim.accumulate},
        {"learning_rate", report.learning_rate}};
    if (is_first_) write_file(path("replay.json"), replay.dump(2) + "\n");
    if (ranks_.size() > 1) checkpoints_.publish(progress);
    fail(ExitCode::kNumeric,
         "step {}: {} steps in a row without a finite gradient ({}); lower [optim] lr; {} names the samples", state_.step,
         kMostNonFiniteSteps, report.skipped, path("replay.json"));
  }

  void validate(StepMetrics& line, Progress& progress) {
    look_at_attention(line, progress);
    if (!trainer_.has_validation()) return;
    const LossSums sums = trainer_.validate(kValidationBatches);
    validation_loss_ = state_.validation_loss = sums.mean_loss();
    line.validation = ValidationMetrics{validation_loss_, sums.accuracy(), sums.count};
    // A comparison with NaN is false: it never becomes the best.
    if (validation_loss_ < state_.best_loss) {
      state_.best_loss = validation_loss_;
      state_.best_step = state_.step;
    }
    among_best_ = checkpoints_.enters_best(validation_loss_);
  }

  // Cosine attention whose tokens see little but themselves learns slowly or not at all; say so once a layer.
  void look_at_attention(StepMetrics& line, Progress& progress) {
    const bool cosine = config_.model.attention.kind == AttentionKind::kCosine;
    if (!is_first_) return;
    if (!cosine && !config_.train.log_entropy) return;
    const std::vector<RowFigures> means = trainer_.attention_figures();
    if (config_.train.log_entropy) {
      for (const RowFigures& layer : means) line.entropy.push_back(layer.entropy);
    }
    if (!cosine) return;
    above_limit_.resize(means.size(), 0);
    for (std::size_t layer = 0; layer < means.size(); ++layer) {
      above_limit_[layer] = means[layer].diagonal > kSelfAttentionLimit ? above_limit_[layer] + 1 : 0;
      if (above_limit_[layer] != 2) continue;
      progress.pause();
      log::warn(
          "layer {}: tokens give {:.3f} of their attention to themselves; try [attention] init_gamma = \"sign\", a smaller "
          "scale, scale_warmup, or --init-from a dot-product model",
          layer, means[layer].diagonal);
    }
  }

  void compare_replicas() {
    if (ranks_.size() == 1 || request_.check_replicas == 0 || state_.step % request_.check_replicas != 0) return;
    const Tensor& values = trainer_.model().parameters().values();
    check_replicas(ranks_, state_.step, xxh64(values.raw(), values.bytes()));
  }

  // Of flags that all have and of figures that all compute, so the same on every rank.
  bool save_is_due() const {
    if ((flags_ & kStop) || state_.step == config_.optim.steps) return false;  // the last save follows
    return (flags_ & kSave) || among_best_ || state_.step % config_.train.save_every == 0;
  }

  TrainResult finish(bool stopped, double seconds) {
    TrainResult result;
    result.code = stopped ? ExitCode::kStopped : ExitCode::kDone;
    result.step = state_.step;
    result.parameters = trainer_.parameters();
    result.skipped = state_.skipped;
    result.loss = loss_;
    result.validation_loss = validation_loss_;
    result.best_loss = state_.best_loss;
    result.best_step = state_.best_step;
    result.digest = checkpoints_.digest();
    result.seconds = seconds;
    if (stopped) {
      log::info("stopped on request after step {}; continue with --resume", state_.step);
    } else {
      const std::string best = state_.best_step < 0
                                   ? "no validation loss"
                                   : fmt::format("best validation loss {:.3f} at step {}", state_.best_loss, state_.best_step);
      log::info("done: {} steps in {}, training loss {:.3f}, {}; {}", state_.step, duration_text(seconds), loss_, best,
                config_.train.output);
    }
    log::set_file("");
    return result;
  }

  const TrainRequest& request_;
  Communicator& ranks_;
  bool is_first_;     // of the ranks: it writes and tells
  StopRequest stop_;  // before the rest: a request that comes while all else is made is not lost
  Config config_;
  Corpus corpus_;
  std::uint64_t corpus_digest_;
  Trainer trainer_;
  Tokenization text_;
  TrainState state_;
  std::uint32_t flags_ = 0;  // of all ranks, in the last step
  double product_rate_ = 1;  // operations per second; measured by the first rank
  double loss_ = std::numeric_limits<double>::quiet_NaN();
  double validation_loss_ = std::numeric_limits<double>::quiet_NaN();
  bool among_best_ = false;  // the validation of this step is one of them
  std::int64_t non_finite_ = 0;
  std::vector<int> above_limit_;
  RunCheckpoints checkpoints_;  // last: its thread reads what stands above
};

}  // namespace

TrainResult train(const TrainRequest& request, Communicator& ranks) {
  check(!request.config.data.corpus.empty(), ExitCode::kData,
        "[data] corpus is not set: give the file that `gau prepare` wrote, in the configuration or by --set data.corpus=FILE");
  choose_threads(request.config, ranks);
  const Precision precision(request.config.train.dtype);
  std::optional<RunDirectory> directory;  // before the run, so that nothing of it saves any more when others may
  TrainingRun run(request, ranks);
  if (ranks.rank() == 0) directory.emplace(request.config.train.output, start_of(request), patience(request, ranks));
  return run.run();
}

}  // namespace gau
