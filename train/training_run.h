// A training run: the run directory, the log, validation, checkpoints, and what happens when something goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/communicator.h"
#include "framework/error.h"
#include "train/config.h"

namespace gau {

struct TrainRequest {
  Config config;
  bool resume = false;          ///< continue the newest good checkpoint of the run directory
  bool allow_new_data = false;  ///< resume with another corpus than that of the checkpoint
  bool overwrite = false;       ///< remove an earlier run's files from the run directory
  std::string init_from;        ///< model to start from, or ""
  /// Every so many steps the ranks' parameters are compared; 0: never.
  std::int64_t check_replicas = 0;
};

struct TrainResult {
  ExitCode code = ExitCode::kDone;  ///< kDone, or kStopped after a signal
  std::int64_t step = 0;
  std::int64_t parameters = 0;
  std::int64_t skipped = 0;
  double loss = 0;             ///< of the last step
  double validation_loss = 0;  ///< the last measured; NaN without a validation split
  double best_loss = 0;
  std::int64_t best_step = -1;
  std::uint64_t digest = 0;  ///< of the final state
  double seconds = 0;
};

/// Trains to config.optim.steps. Writes config.toml, metrics.jsonl, log.txt and checkpoints into config.train.output. Throws
/// Error(kUsage) for a run directory that is in use without resume or overwrite, Error(kData) when resuming with another corpus
/// without allow_new_data, Error(kNumeric) after five steps in a row whose gradient is not finite (a replay.json says how to
/// see it again), Error(kIo) when files cannot be written; a checkpoint on the way that cannot be saved is only warned of.
///
/// All `ranks` call with the same request (Error(kConfigDiffers) when it is not, before the first step). Rank 0 alone writes
/// into the run directory, but for optimizer files of checkpoints; a signal to any rank reaches all after the same step.
TrainResult train(const TrainRequest& request, Communicator& ranks = one_rank());

}  // namespace gau
