#include "train/stop_request.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace gau {

namespace {

volatile std::sig_atomic_t stop_signals = 0;
volatile std::sig_atomic_t save_signals = 0;

void on_stop(int signal) {
  if (stop_signals && signal != SIGUSR1) _exit(128 + signal);
  stop_signals = 1;
}

void on_save(int) { save_signals = 1; }

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest() {
  stop_signals = 0;
  save_signals = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) install(signal, on_stop);
  install(SIGUSR2, on_save);
}

StopRequest::~StopRequest() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) install(signal, SIG_DFL);
}

bool StopRequest::stop() const { return stop_signals != 0; }

bool StopRequest::take_save() {
  const bool asked = save_signals != 0;
  save_signals = 0;
  return asked;
}

}  // namespace gau
