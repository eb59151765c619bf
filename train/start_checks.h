// Before the first step: what all ranks of a run must have in common.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/communicator.h"
#include "train/config.h"

namespace gau {

/// Names and values, in an order that is the same on all ranks.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Every key of the configuration but those that may differ from machine to machine: the corpus's path, threads, and what only
/// rank 0 or nobody reads in a training.
Facts shared_settings(const Config& config);

/// Throws Error(kConfigDiffers) on all ranks when some rank's facts differ from those of rank 0, naming the first that does.
void check_agreement(Communicator& ranks, const Facts& facts);

/// How this rank shares its machine.
struct Neighbours {
  int ranks = 1;         ///< on this host, itself included
  bool is_first = true;  ///< of them
};
Neighbours neighbours(const Communicator& ranks);

/// Threads of a rank when nobody has chosen: all processors it may run on; its share of them where the launcher has not bound
/// ranks to different ones, `processors` being all that are `online`.
int default_threads(int processors, int online, int ranks_here);

/// What to do when this process has more threads than processors it may run on, several ranks being there; else "".
std::string binding_advice(int threads, int processors, int ranks);

/// Throws Error(kNumeric) on all ranks when the replicas' digests differ, naming ranks that are alone with theirs.
void check_replicas(Communicator& ranks, std::int64_t step, std::uint64_t digest);

}  // namespace gau
