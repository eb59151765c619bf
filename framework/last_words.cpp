#include "framework/last_words.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "framework/error.h"

namespace gau {
namespace {

struct Farewell {
  int signal;
  std::string line;
};

// Made beforehand, since a handler may not allocate; never destroyed, since it may run late.
std::array<Farewell, 5>& farewells() {
  static auto* const lines =
      new std::array<Farewell, 5>{{{SIGSEGV, ""}, {SIGBUS, ""}, {SIGFPE, ""}, {SIGILL, ""}, {SIGABRT, ""}}};
  return *lines;
}
std::string& early_exit() {
  static auto* const line = new std::string;
  return *line;
}
volatile sig_atomic_t is_over = 0;

void say(const std::string& line) {
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

void crash(int signal) {
  for (const Farewell& farewell : farewells()) {
    if (farewell.signal == signal) say(farewell.line);
  }
  // The handler was for one time: the signal now does what it does.
  raise(signal);
}

void leave() {
  if (is_over != 0) return;
  say(early_exit());
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

}  // namespace

void promise_last_words(const std::string& who) {
  for (Farewell& farewell : farewells()) {
    farewell.line = fmt::format("gau: {}: ended by signal {} ({})\n", who, farewell.signal, strsignal(farewell.signal));
    struct sigaction action = {};
    action.sa_handler = crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_NODEFER;
    sigaction(farewell.signal, &action, nullptr);
  }
  early_exit() = fmt::format("gau: {}: left before the job was over\n", who);
  std::atexit(leave);
}

void forget_last_words() { is_over = 1; }

}  // namespace gau
