// Checkpoints of a run: directories that are there whole or not at all.
//
//   RUN/checkpoints/step-120/manifest.json    sizes and digests of the files, tensor ranges, configuration, training state
//                           model.h5          parameters (model_io.h)
//                           optimizer-0.h5 …  moments, cut into as many parts as the step has virtual shards
//   RUN/checkpoints/latest, best              symbolic links to one of them: every path through them works in any program
//
// A checkpoint is written under a temporary name, synced and renamed; the links move after it, `latest` last. It holds no path,
// host, time, thread or rank count, so equal states give equal bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/model_io.h"
#include "train/optimizer.h"

namespace gau {

/// Where a run stands, between two optimizer steps. Integers and one loss: there is no state of a generator to keep.
struct TrainState {
  std::int64_t step = 0;                                       ///< optimizer steps done, skipped ones included
  std::uint64_t cursor = 0;                                    ///< samples consumed, over all ranks
  double best_loss = std::numeric_limits<double>::infinity();  ///< smallest validation loss so far
  std::int64_t best_step = -1;                                 ///< the step it was seen at; -1: never
  std::int64_t skipped = 0;  ///< steps without effect: no masked token, or gradients that are not finite
};

/// xxh64 over parameters, moments and training state, nothing else: equal states have equal digests.
std::uint64_t state_digest(const Model& model, const Optimizer& optimizer, const TrainState& state);

/// What manifest.json says.
struct Manifest {
  std::string directory;
  TrainState state;
  std::uint64_t digest = 0;  ///< state_digest
  std::int64_t updates = 0;  ///< of the optimizer
  std::int64_t parameters = 0;
  std::int64_t parts = 0;                     ///< optimizer files
  DType dtype = DType::kF32;                  ///< of parameters and moments
  std::map<std::string, std::string> config;  ///< config_values(…, portable)
};

/// Reads manifest.json and checks that it is whole and that every file it names has the size and digest it states. Throws
/// Error(kData) naming the first that differs, Error(kIo) when something cannot be read.
Manifest verify_checkpoint(const std::string& directory);

/// Verifies a checkpoint, then restores model, optimizer and state from it; the restored state must have the manifest's digest.
void load_checkpoint(const std::string& directory, Model& model, Optimizer& optimizer, TrainState& state);

/// The checkpoints of one run.
class CheckpointStore {
 public:
  /// `run` is the run directory; `keep` newest checkpoints survive, besides the best.
  CheckpointStore(const std::string& run, std::int64_t keep);

  /// Publishes step-N for state.step, moves `best` to it when asked, then `latest`, then removes old ones. Returns the state's
  /// digest. Throws Error(kIo) with path and errno text; what was there before is then still there.
  std::uint64_t save(const Model& model, const Optimizer& optimizer, const TrainState& state, const Config& config,
                     const Tokenization& text, bool best) const;

  /// Directory of the newest checkpoint that verifies, with a warning for each newer one that does not; nothing when there is
  /// no checkpoint. Throws Error(kData) when there are checkpoints and none verifies.
  std::optional<std::string> newest() const;

  /// Steps that have a directory here, ascending.
  std::vector<std::int64_t> steps() const;
  std::string directory_of(std::int64_t step) const;

 private:
  void remove_leftovers() const;
  void publish(const std::string& temporary, std::int64_t step) const;
  void link(const std::string& name, std::int64_t step) const;
  void prune(std::int64_t newest) const;
  void remove(std::int64_t step) const;

  std::string directory_;
  std::int64_t keep_;
};

}  // namespace gau
