// The processes that this one has started, directly or not.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gau::launch {

/// Makes this process the parent of every descendant whose own parent ends. mpirun puts ranks into process groups of their own,
/// so without this a killed mpirun could leave some that nobody finds.
void adopt_orphans();

/// All descendants, from /proc.
std::vector<pid_t> descendants();

/// Of them, those whose parent is a program of that name (15 characters of it).
std::vector<pid_t> descendants_below(const std::string& parent);

/// SIGKILL to all descendants, until there are none, for at most `seconds`.
void kill_descendants(double seconds);

}  // namespace gau::launch
