// Saving beside training: the state is copied, a thread writes the copy, and the run publishes it when it next comes by.
//
// The thread writes, digests and syncs; it makes no link, removes no checkpoint and sends no message. Renaming, links and
// pruning happen in publish(), where the run calls it: what is a checkpoint changes between two steps alone. With several ranks
// each writes its part; all call begin() and publish() after the same steps, the first rank does what is done once, and a
// failure of one rank is the failure of all.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "framework/communicator.h"
#include "train/checkpoint_store.h"

namespace gau {

class BackgroundSave {
 public:
  /// All must outlive it, and so must what `facts` refers to.
  BackgroundSave(const CheckpointStore& store, const RunFacts& facts, Communicator& ranks = one_rank())
      : store_(store), facts_(facts), ranks_(ranks) {}

  /// Copies `now` and begins to write the copy. No save may be in flight. `best`: it becomes the best checkpoint.
  void begin(const Snapshot& now, bool best);
  /// The same without a copy, where `now` does not change before publish().
  void begin_without_copy(const Snapshot& now, bool best);
  bool in_flight() const { return writing_.valid(); }
  /// The step in flight, or -1.
  std::int64_t step() const { return in_flight() ? copy_.state.step : -1; }
  /// This rank's writer has finished, well or not.
  bool done() const;
  /// Waits for the writers, publishes, returns the state's digest. Throws Error(kIo) when writing or publishing failed on any
  /// rank; in both cases nothing is in flight afterwards.
  std::uint64_t publish();

 private:
  void start(bool best);
  std::string written();
  std::uint64_t publish_files(const std::vector<std::string>& written) const;

  const CheckpointStore& store_;
  RunFacts facts_;
  Communicator& ranks_;
  Snapshot copy_;
  bool best_ = false;
  std::future<std::vector<ManifestFile>> writing_;  // last, so that its destructor waits before the copy goes
};

}  // namespace gau
