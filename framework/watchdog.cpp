// The watching thread and its only act.
#include "framework/watchdog.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "framework/error.h"

namespace gau {

Watchdog::Watchdog(double seconds) : seconds_(seconds), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin(std::string line) {
  const std::lock_guard lock(mutex_);
  waiting_ = true;
  since_ = std::chrono::steady_clock::now();
  line_ = std::move(line);
}

void Watchdog::end() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
}

void Watchdog::watch() {
  // Signals belong to the main thread, which may be in a call that they must interrupt.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  // Looking four times a timeout is exact enough and costs nothing.
  const auto pause = std::chrono::duration<double>(std::min(0.25, seconds_ / 4));
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, pause);
    if (!waiting_) continue;
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
    if (waited < seconds_) continue;
    const std::string text = fmt::format("{} (waited {:.1f} s; [train] timeout = {})\n", line_, waited, seconds_);
    // Unbuffered, and the process leaves without any cleaning up: whatever holds a lock may never let it go.
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(static_cast<int>(ExitCode::kPeerLost));
    _exit(static_cast<int>(ExitCode::kPeerLost));
  }
}

}  // namespace gau
