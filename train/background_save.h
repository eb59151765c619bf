// Saving beside training: the state is copied, a thread writes the copy, and the run publishes it when it next comes by.
//
// The thread writes, digests and syncs; it makes no link, removes no checkpoint and knows nothing of other processes. Renaming,
// links and pruning happen in publish(), where the run calls it: what is a checkpoint changes between two steps alone.
#pragma once

#include <cstdint>
#include <future>

#include "train/checkpoint_store.h"

namespace gau {

class BackgroundSave {
 public:
  /// Both must outlive it, and so must what `facts` refers to.
  BackgroundSave(const CheckpointStore& store, const RunFacts& facts) : store_(store), facts_(facts) {}

  /// Copies `now` and begins to write the copy. No save may be in flight. `best`: it becomes the best checkpoint.
  void begin(const Snapshot& now, bool best);
  bool in_flight() const { return writing_.valid(); }
  /// The step in flight, or -1.
  std::int64_t step() const { return in_flight() ? copy_.state.step : -1; }
  /// The writer of the save in flight has finished, well or not.
  bool done() const;
  /// Waits for the writer, publishes, returns the state's digest. Throws Error(kIo) when writing or publishing failed; in both
  /// cases nothing is in flight afterwards.
  std::uint64_t publish();

 private:
  const CheckpointStore& store_;
  RunFacts facts_;
  Snapshot copy_;
  bool best_ = false;
  std::future<std::uint64_t> writing_;  // last, so that its destructor waits before the copy goes
};

}  // namespace gau
