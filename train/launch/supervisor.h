// Runs a job once: starts it, hands its output on line by line, passes signals on, and ends it when it does not end itself.
//
// A rank that gives up says so in a line and leaves; mpirun should then end the others, but hangs when a cable is cut or when
// it was stopped. So after such a line a grace is counted, and then every process of the job is killed. The job runs in a
// process group of its own: Ctrl-C reaches this process alone, which asks for a checkpoint first.
#pragma once

#include "train/launch/launch_plan.h"

namespace gau::launch {

struct WatchOptions {
  double grace = 5;       ///< seconds between a rank that gave up, or a stopped mpirun, and the end by force
  double patience = 120;  ///< seconds for a checkpoint after a request to stop
};

struct JobEnd {
  int code = 0;             ///< the job's exit code; 128 + signal when one ended it; 76 when it was ended by force
  bool stop_asked = false;  ///< SIGTERM or SIGINT came here
};

/// Blocks the signals that a Supervisor handles, from its making to its end; one a process.
class Supervisor {
 public:
  explicit Supervisor(const WatchOptions& options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Throws Error(kUsage) when the program cannot be started.
  JobEnd run(const Command& command);
  /// Waits between two starts. False when a request to stop came meanwhile.
  bool pause(double seconds);

 private:
  WatchOptions options_;
  int signals_ = -1;  ///< a signalfd
};

}  // namespace gau::launch
