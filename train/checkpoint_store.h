// The checkpoints of one run: which are there, which counts, which may go.
//
//   RUN/checkpoints/step-120/     one checkpoint (checkpoint.h)
//   RUN/checkpoints/latest, best  symbolic links to one of them: every path through them works in any program
//
// A checkpoint is written as .step-N.tmp, synced and renamed; the links move after it, `latest` last, then old ones are
// removed. Whatever is killed on the way leaves names that begin with a dot, which the next run and the next save remove.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace gau {

class CheckpointStore {
 public:
  /// `run` is the run directory. The `keep` newest checkpoints survive, and the `keep_best` of smallest validation loss.
  CheckpointStore(const std::string& run, std::int64_t keep, std::int64_t keep_best = 1);

  /// A checkpoint is made by prepare(), once, then write() by every rank for its snapshot, which touches nothing else and may
  /// run beside everything here; then complete(), once, with what write() returned, in the order of ranks. The last returns the
  /// state's digest. All throw Error(kIo) with path and errno text; discard() removes what is then there.
  void prepare(std::int64_t step) const;
  std::vector<ManifestFile> write(const RunFacts& facts, const Snapshot& snapshot) const;
  std::uint64_t complete(const RunFacts& facts, const Snapshot& snapshot, const std::vector<ManifestFile>& files) const;
  void discard(std::int64_t step) const;
  /// Makes what complete() left for `step` a checkpoint, moves `best` to it when asked, then `latest`, then removes old ones.
  /// Throws Error(kIo); the checkpoints before are then still there.
  void publish(std::int64_t step, bool best) const;

  /// The newest checkpoint that verifies, with a warning for each newer one that does not; nothing when there is no checkpoint.
  /// Throws Error(kData) when there are checkpoints and none verifies.
  std::optional<Manifest> newest() const;
  /// Before a run goes on from `state`: `latest` points to it again and `best` to its best step, whatever a kill between a
  /// rename and the links left.
  void relink(const TrainState& state) const;
  /// Removes what killed or failed writers left under our temporary names. Not beside a write().
  void remove_leftovers() const;

  /// Steps that have a directory here, ascending.
  std::vector<std::int64_t> steps() const;
  /// The validation losses of the best checkpoints up to state.step, smallest first, at most `keep_best`. That of the state is
  /// one of them, whether or not its checkpoint is still there.
  std::vector<double> best_losses(const TrainState& state) const;
  std::string directory_of(std::int64_t step) const;

 private:
  struct Validated {
    double loss;
    std::int64_t step;
  };
  std::vector<Validated> best(std::int64_t newest) const;
  std::string temporary_of(std::int64_t step) const;
  void link(const std::string& name, std::int64_t step) const;
  void prune(std::int64_t newest) const;

  std::string directory_;
  std::int64_t keep_;
  std::int64_t keep_best_;
};

}  // namespace gau
