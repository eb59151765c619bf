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

/// "mpirun --bind-to none …" when this process may run on fewer processors than it has threads; else "".
std::string binding_advice(int threads, int processors, int ranks);

/// Throws Error(kNumeric) on all ranks when the replicas' digests differ, naming ranks that are alone with theirs.
void check_replicas(Communicator& ranks, std::int64_t step, std::uint64_t digest);

}  // namespace gau
