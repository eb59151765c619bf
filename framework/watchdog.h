// Watchdog: ends the process when a wait for another rank takes too long.
//
// MPI waits for ever for a peer that was stopped or cut off, and not every wait returns to us. So a thread of its own looks at
// the clock, makes no call of the communication library, prints one line and leaves the process; the launcher ends the rest.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace gau {

class Watchdog {
 public:
  /// Waits of more than `seconds` end the process with code 76.
  explicit Watchdog(double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on somebody is waited for. `line` is printed when it takes too long: "gau: rank 0 (a): waited … s for " and it.
  void begin(std::string line);
  /// The wait is over.
  void end();

 private:
  void watch();

  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point since_;
  std::string line_;
  std::thread thread_;  ///< last, so that all it uses is there when it starts
};

}  // namespace gau
