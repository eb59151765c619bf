// Where a step's time goes: seconds by kernel, recorded at the kernels' front doors.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace gau {

/// Seconds by kernel name.
using KernelTimes = std::map<std::string, double>;

/// Records the calling thread's kernels while it lives; one at a time.
class KernelProfile {
 public:
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  const KernelTimes& times() const { return times_; }

 private:
  friend class KernelTimer;
  KernelTimes times_;
};

/// Adds the time between its making and its end to the profile, when there is one.
class KernelTimer {
 public:
  explicit KernelTimer(const char* name);
  ~KernelTimer();
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

 private:
  KernelProfile* profile_;
  const char* name_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace gau
