// The ranks of the job that this program is part of, for the commands that work on several.
#pragma once

#include <string>

#include "framework/communicator.h"

namespace gau::cli {

/// Started by the first call, which also lets rank 0 alone tell how things go. Throws as start_ranks().
Communicator& ranks();
/// True when ranks() has found others.
bool several_ranks();
/// "rank 1 (node7): " with several ranks, else nothing: what an error line begins with.
std::string rank_prefix();
/// Ends the job in order, when it was started: every rank has come to its end.
void finish_ranks();

}  // namespace gau::cli
