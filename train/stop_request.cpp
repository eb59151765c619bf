#include "train/stop_request.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace gau {

namespace {

// Any thread may run a handler, the run's own reads.
std::atomic<bool> stop_wanted = false;
std::atomic<bool> save_wanted = false;
std::atomic<bool> told_once = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  // SIGUSR1 does not count: a batch system sends it early, and SIGTERM when the time is up.
  if (signal != SIGUSR1 && told_once.exchange(true)) _exit(128 + signal);
  stop_wanted = true;
}

void on_save(int) { save_wanted = true; }

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest() {
  stop_wanted = save_wanted = told_once = false;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) install(signal, on_stop);
  install(SIGUSR2, on_save);
}

StopRequest::~StopRequest() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) install(signal, SIG_DFL);
}

bool StopRequest::stop() const { return stop_wanted; }

bool StopRequest::take_save() { return save_wanted.exchange(false); }

}  // namespace gau
