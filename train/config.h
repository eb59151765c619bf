// The configuration of a training run: plain structs, filled from defaults < TOML file < GAU_TABLE_KEY environment variables
// < `--set table.key=value`.
//
// One table of keys (config_keys.cpp) drives all of it: reading, ranges, the environment, --set, help, and the writer of the
// effective configuration, which can be fed back. Values are parsed from their text by one grammar (config_values.h), so that a
// number means the same wherever it is written.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "framework/dtype.h"
#include "framework/error.h"
#include "framework/rank_group.h"
#include "layers/model_config.h"

namespace gau {

enum class OptimizerKind { kAdamW, kLamb };
enum class ScheduleKind { kLinear, kCosine, kPiecewise, kConstant };
/// Order in which gradients of several ranks are added: a binary tree over virtual shards, or rank by rank.
enum class ReduceOrder { kTree, kRank };

/// (step, factor), ascending in step.
using SchedulePoints = std::vector<std::pair<std::int64_t, double>>;

struct DataConfig {
  std::string corpus;        ///< path of corpus.h5
  std::int64_t length = 64;  ///< tokens of a training sequence, L_train
  std::int64_t batch = 64;   ///< sequences of a micro-step, over all ranks
  double mask_prob = 0.15;   ///< probability that a token (or word) is masked
  bool whole_word = false;   ///< mask words, not tokens
  LabelMode masking = LabelMode::kAuto;
};

struct OptimConfig {
  OptimizerKind name = OptimizerKind::kAdamW;
  double lr = 2e-3;            ///< peak learning rate
  double weight_decay = 0.01;  ///< decoupled, on every parameter
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;  ///< 1e-6 for lamb, unless set
  ScheduleKind schedule = ScheduleKind::kLinear;
  SchedulePoints points{{0, 1.0}};  ///< of the piecewise schedule
  double warmup = 0.1;              ///< steps; below 1: a fraction of all
  double clip = 1;                  ///< largest norm of the gradient; 0: no clipping
  std::int64_t accumulate = 1;      ///< micro-steps of an optimizer step
  std::int64_t steps = 1000;        ///< optimizer steps

  /// Warm-up in whole steps, below `steps`.
  std::int64_t warmup_steps() const;
};

struct TrainConfig {
  std::int64_t seed = 0;
  DType dtype = DType::kF32;
  std::string device = "cpu";
  std::int64_t threads = 0;  ///< 0: one a core
  std::int64_t eval_every = 100;
  std::int64_t save_every = 500;
  double save_minutes = 0;  ///< 0: by steps alone
  std::int64_t keep = 2;
  std::int64_t keep_best = 1;
  std::int64_t log_every = 10;
  bool log_entropy = false;  ///< metrics.jsonl tells the entropy of attention of each layer at validations
  std::string output = "runs/gau";
  ReduceOrder reduce = ReduceOrder::kTree;
  std::int64_t shards = 8;
  std::int64_t bucket = 1 << 17;  ///< gradient elements that ranks exchange at a time
  DType wire = DType::kF32;       ///< of gradients between ranks: f32 is the gradients' own type, bf16 halves the traffic
  double timeout = 300;           ///< seconds that a rank waits for another one; 0: for ever
  bool zero = false;
  std::int64_t sequence_parallel = 1;                              ///< neighbouring ranks that share each sequence
  SequenceExchange sequence_exchange = SequenceExchange::kGather;  ///< how these come by each other's keys
  std::string skip = "exact";                                      ///< keys that attention leaves out: see train/skip_option.h
};

struct EvalConfig {
  std::vector<std::int64_t> lengths{64, 128, 256, 512};
  std::string methods = "rope";
  std::int64_t targets = 0;  ///< 0: all
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimConfig optim;
  TrainConfig train;
  EvalConfig eval;

  /// What values must satisfy together; throws Error(kData) naming the keys and their values. A vocabulary size of 0 (not known
  /// before the corpus is read) passes.
  void validate() const;
};

using Environment = std::map<std::string, std::string>;
/// The GAU_… variables of this process.
Environment gau_environment();

/// Reads and validates a configuration. `path` may be empty (no file); `settings` are "table.key=value". Sets L_train
/// (model.attention.train_length) to data.length, and optim.eps to the optimizer's own when nobody set it. Unknown names, bad
/// values and contradictions throw one line with the place (file:line, variable, --set) and the nearest known name:
/// Error(kData) for the file, Error(kUsage) for the environment and --set; a file that cannot be read throws Error(kIo).
/// Unknown GAU_… variables that look like keys warn.
Config load_config(const std::string& path, const std::vector<std::string>& settings = {},
                   const Environment& environment = gau_environment());
/// The same for text; `name` stands for the file in messages.
Config parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& settings = {},
                    const Environment& environment = {});

/// The whole configuration as TOML, every key with its value. parse_config(to_toml(c)) equals c bit by bit.
std::string to_toml(const Config& config);

/// "optim.lr" -> "0.002" for every key. With `portable`, only what decides the result of a run: no path, thread count or
/// interval of reports.
std::map<std::string, std::string> config_values(const Config& config, bool portable);

/// "optim.lr: 0.002 -> 0.001" for each key of `before` (config_values of an earlier run) that now differs.
std::vector<std::string> config_differences(const std::map<std::string, std::string>& before, const Config& now);

/// Every key with its default, range and meaning, for --help.
std::string config_help();

}  // namespace gau
