// The processes that this one has started, directly or not.
#pragma once

#include <sys/types.h>

#include <vector>

namespace gau::launch {

/// Makes this process the parent of every descendant whose own parent ends. mpirun puts ranks into process groups of their own,
/// so without this a killed mpirun could leave some that nobody finds.
void adopt_orphans();

/// All descendants, from /proc.
std::vector<pid_t> descendants();

/// SIGKILL to all descendants, until there are none, for at most `seconds`.
void kill_descendants(double seconds);

}  // namespace gau::launch
