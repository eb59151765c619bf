// A rank that ends without having been asked says so: a crash, or an exit before the job is over.
//
// Launchers differ in what they tell of a process that is gone; Open MPI's names the rank, MPICH's the process, and neither
// takes an exit code of 0 for a failure. A signal that cannot be caught is left to them.
#pragma once

#include <string>

namespace gau {

/// From now on fatal signals (segmentation fault, abort, …) print one line, "gau: WHO: ended by signal …", before they take
/// their course, and an exit, but for _exit, prints one and has code 76. Once a process; replaces other handlers.
void promise_last_words(const std::string& who);
/// The job is over: nothing more is said.
void forget_last_words();

}  // namespace gau
