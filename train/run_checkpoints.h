// The checkpoints of a run while it goes on: the one to go on from, what is saved when, and what a failure of it costs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "framework/communicator.h"
#include "train/background_save.h"
#include "train/checkpoint_store.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace gau {

/// All ranks call everything here after the same steps, but for what looks only: due_by_clock(), writing(), in_flight().
class RunCheckpoints {
 public:
  /// All must outlive it, and so must what `facts` refers to.
  RunCheckpoints(const RunFacts& facts, Trainer& trainer, Communicator& ranks)
      : facts_(facts), trainer_(trainer), ranks_(ranks), is_first_(ranks.rank() == 0) {}

  /// Once the first rank has made the run directory. Returns the newest checkpoint that verifies when `resume`, if there is
  /// one. Throws Error(kIo) where a rank does not see that directory, Error(kData) when no checkpoint is whole.
  std::optional<Manifest> open(bool resume);
  /// The run goes on from `checkpoint`, which is loaded; `state` is its state.
  void resumed(const Manifest& checkpoint, const TrainState& state);
  /// The clock of [train] save_minutes starts.
  void start_clock() { last_save_ = Clock::now(); }

  /// The first rank's clock asks for a save.
  bool due_by_clock() const;
  /// A validation's loss is among the keep_best best; counts it.
  bool enters_best(double loss);

  /// Begins to save the state as it is now, after the save in flight.
  void begin(const TrainState& state, Progress& progress);
  bool in_flight() const { return saver_->in_flight(); }
  /// This rank's writer is still busy.
  bool writing() const { return saver_->in_flight() && !saver_->done(); }
  /// Ends the save in flight, if there is one. A failure costs a checkpoint, not the run.
  void publish(Progress& progress);
  /// Saves the last state, unless it is saved. Throws Error(kIo): this failure is the run's.
  void save_last(const TrainState& state);

  /// Of the newest checkpoint's state; 0 without one.
  std::uint64_t digest() const { return digest_; }

 private:
  using Clock = std::chrono::steady_clock;

  void open_store();
  Snapshot now(const TrainState& state);
  bool is_best(const TrainState& state) const;

  RunFacts facts_;
  Trainer& trainer_;
  Communicator& ranks_;
  bool is_first_;
  std::vector<double> best_losses_;  // of the best checkpoints, ascending
  std::uint64_t digest_ = 0;
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  Clock::time_point last_save_;   // when the last periodic save began
  bool waited_ = false;
  std::optional<CheckpointStore> store_;
  std::optional<BackgroundSave> saver_;  // last: its thread reads what stands above
};

}  // namespace gau
