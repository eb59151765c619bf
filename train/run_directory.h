// The directory of a run while it goes on: one run at a time, and nothing of an earlier one goes unless somebody says so.
//
// Two runs that save into one directory remove each other's unfinished checkpoints and mix their metrics; a scheduler that
// starts a job again before its predecessor has ended is how that comes about. So a run holds a lock (flock) on RUN/run.lock.
// The system releases it with the process, however that ends: a killed run is in nobody's way, and the file that stays means
// nothing. Over NFS Linux makes of it a lock of the server, which outlives a machine that lost its power by the lease (about a
// minute and a half). A file system without locks costs a warning. The file says who holds it, for the message alone.
#pragma once

#include <string>

#include "framework/descriptor.h"

namespace gau {

enum class RunStart { kFresh, kResume, kOverwrite };

class RunDirectory {
 public:
  /// Makes the directory, locks it, and removes an earlier run's files with kOverwrite. A run that resumes waits up to
  /// `patience` seconds for its predecessor, which may be ending just then. Throws Error(kUsage) when another run holds the
  /// directory, naming its process and host, and for an earlier run's files with kFresh: nothing failed and no file is bad, the
  /// command came too early or names the wrong place, and gau-launch does not repeat it. Throws Error(kIo) when the directory
  /// cannot be made, cleared or locked for another reason.
  RunDirectory(const std::string& path, RunStart start, double patience);

 private:
  Descriptor lock_;
};

}  // namespace gau
