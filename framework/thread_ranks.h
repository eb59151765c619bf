// Ranks as threads of one process: what a rank does can be tested without a launcher.
//
// Messages are copied into mailboxes, so a send is done at once. Loops of framework/parallel.h run serially in all threads but
// one, which does not change a bit. What belongs to a process (signals, the number of threads, the log) is shared.
#pragma once

#include <functional>

#include "framework/communicator.h"

namespace gau {

/// Runs `body` in `ranks` threads, each with its own communicator, and waits for them. When one throws, the others' waits throw
/// Error(kPeerLost), and the first exception is thrown on to the caller.
void run_as_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace gau
