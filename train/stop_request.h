// Asking a running training to stop: SIGINT, SIGTERM and SIGUSR1 finish the step, save and leave with exit code 75; SIGUSR2
// saves and goes on. A second SIGINT or SIGTERM leaves at once.
#pragma once

namespace gau {

/// Installs the handlers while it lives.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool stop() const;
  /// True once for each request to save.
  bool take_save();
};

}  // namespace gau
