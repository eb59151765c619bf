// The program running beside the test: started, watched, signalled, waited for.
#pragma once

#include <fcntl.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/cli/program.h"

namespace gau {

class Process {
 public:
  /// Starts `command` through the shell, which it replaces. Killed at the end when it still runs.
  explicit Process(const std::string& command) {
    const std::string line = "exec " + command;
    id_ = fork();
    if (id_ != 0) return;
    const int null = open("/dev/null", O_RDONLY);
    const int out = open(scratch_.file("out").c_str(), O_WRONLY | O_CREAT, 0600);
    const int err = open(scratch_.file("err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Process() {
    if (!running_) return;
    send(SIGKILL);
    wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { kill(id_, signal); }
  bool running() {
    if (running_ && waitpid(id_, &status_, WNOHANG) == id_) running_ = false;
    return running_;
  }
  /// What it printed, and its exit code; 128 + signal when that ended it.
  ProgramResult wait() {
    if (running_) waitpid(id_, &status_, 0);
    running_ = false;
    ProgramResult result;
    result.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    result.out = out();
    result.err = err();
    return result;
  }
  /// Looks again and again until `condition` holds; false when the process ends before, or after half a minute, far beyond
  /// what a test waits for.
  bool wait_until(const std::function<bool()>& condition) {
    for (int attempt = 0; attempt < 30000; ++attempt) {
      const bool alive = running();
      if (condition()) return true;
      if (!alive) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::string out() const { return read_text(scratch_.path() / "out"); }
  std::string err() const { return read_text(scratch_.path() / "err"); }

 private:
  TestDirectory scratch_;
  pid_t id_ = -1;
  int status_ = 0;
  bool running_ = true;
};

}  // namespace gau
