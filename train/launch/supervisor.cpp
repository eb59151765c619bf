#include "train/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "framework/communicator.h"
#include "framework/error.h"
#include "framework/log.h"
#include "train/launch/mpich_report.h"
#include "train/launch/processes.h"

namespace gau::launch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr double kKillSeconds = 5;
// Between the end of a rank and that of the others where we see to it: they may still have to say or write something.
constexpr double kLagSeconds = 0.5;
// Descriptors and signals wake us; this bounds how late a deadline is noticed, milliseconds.
constexpr int kPollMilliseconds = 100;

// What a rank's own last line looks like, and how Open MPI says that a host or a rank is gone.
bool tells_of_an_end(std::string_view line) {
  if (line.starts_with("gau: rank ") && line.find("): warning: ") == std::string_view::npos) return true;
  return line.find("mpirun noticed that process rank") != std::string_view::npos;
}
// A host or a rank that is silent: 76, whatever mpirun makes of it.
bool tells_of_a_lost_peer(std::string_view line) {
  return (line.starts_with("gau: rank ") && line.find("): gave up waiting for ") != std::string_view::npos) ||
         line.find("ORTE has lost communication") != std::string_view::npos ||
         line.find("ORTE daemon has unexpectedly failed") != std::string_view::npos;
}

void write_all(int descriptor, std::string_view text) {
  // Output that nobody reads any more is no reason to leave a job alone.
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// One output of the job, handed on and looked at: as it comes from Open MPI, by lines from MPICH, whose report of a failure
// goes to standard error wherever it stands.
class Output {
 public:
  Output(int target, bool mpich) : target_(target), mpich_(mpich) {
    std::array<int, 2> ends{};
    const int made = pipe2(ends.data(), O_CLOEXEC);  // before the arguments below, one of which is errno
    check(made == 0, ExitCode::kIo, "a pipe cannot be made: {}", std::strerror(errno));
    read_ = ends[0];
    write_ = ends[1];
    fcntl(read_, F_SETFL, O_NONBLOCK);
  }
  ~Output() {
    close_writing();
    close(read_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int reading() const { return open_ ? read_ : -1; }
  int writing() const { return write_; }
  void close_writing() {
    if (write_ >= 0) close(write_);
    write_ = -1;
  }
  // All that is there now; true when a line told of an end.
  void take() {
    std::array<char, 65536> part{};
    for (;;) {
      const ssize_t got = read(read_, part.data(), part.size());
      if (got < 0 && errno == EINTR) continue;
      if (got == 0) end_of_lines();
      if (got <= 0) return;
      const std::string_view text(part.data(), static_cast<std::size_t>(got));
      if (!mpich_) write_all(target_, text);
      look_at(text);
    }
  }
  bool rank_ended() const { return rank_ended_; }
  bool peer_lost() const { return peer_lost_; }
  const RankEnds& ranks() const { return ranks_; }

 private:
  void end_of_lines() {
    open_ = false;
    if (mpich_) write_all(target_, line_);
    line_.clear();
  }
  void look_at(std::string_view text) {
    for (const char c : text) {
      if (c != '\n') {
        if (mpich_ || line_.size() < kLongest) line_ += c;
        continue;
      }
      peer_lost_ = peer_lost_ || tells_of_a_lost_peer(line_);
      rank_ended_ = rank_ended_ || peer_lost_ || tells_of_an_end(line_);
      if (mpich_) write_all(is_of_hydra(line_) ? STDERR_FILENO : target_, line_ + '\n');
      ranks_.take(line_);
      line_.clear();
    }
  }

  static constexpr std::size_t kLongest = 4096;  // of a line that is looked at

  int target_;
  bool mpich_;
  RankEnds ranks_;
  int read_ = -1, write_ = -1;
  bool open_ = true;
  std::string line_;
  bool rank_ended_ = false, peer_lost_ = false;
};

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// The next signal that came, or 0.
int take_signal(int descriptor) {
  signalfd_siginfo info{};
  return read(descriptor, &info, sizeof info) == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

bool asks_to_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

[[noreturn]] void become(const Command& command, const Output& out, const Output& err, int failure, pid_t parent) {
  setpgid(0, 0);
  // When this launcher is killed itself, mpirun still gets the chance to end its ranks.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(static_cast<int>(ExitCode::kPeerLost));
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // A job in the background may not read from a terminal.
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out.writing(), STDOUT_FILENO);
  dup2(err.writing(), STDERR_FILENO);
  for (const auto& [name, value] : command.variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  const int code = errno;
  if (write(failure, &code, sizeof code) < 0) _exit(127);
  _exit(127);
}

pid_t start(const Command& command, Output& out, Output& err) {
  std::array<int, 2> failure{};
  const int made = pipe2(failure.data(), O_CLOEXEC);  // before the arguments below, one of which is errno
  check(made == 0, ExitCode::kIo, "a pipe cannot be made: {}", std::strerror(errno));
  const pid_t self = getpid();
  const pid_t id = fork();
  if (id == 0) become(command, out, err, failure[1], self);
  const int reason = errno;
  close(failure[1]);
  out.close_writing();
  err.close_writing();
  int code = 0;
  const bool failed = id > 0 && read(failure[0], &code, sizeof code) == static_cast<ssize_t>(sizeof code);
  close(failure[0]);
  check(id > 0, ExitCode::kIo, "a process cannot be started: {}", std::strerror(reason));
  if (failed) {
    waitpid(id, nullptr, 0);
    fail(ExitCode::kUsage, "{}: cannot be started: {}", command.words.front(), std::strerror(code));
  }
  return id;
}

// One start of a job, from its first process to the end of its last.
class Watch {
 public:
  Watch(const WatchOptions& options, int signals, const Command& command)
      : options_(options),
        signals_(signals),
        mpich_(command.mpich),
        out_(STDOUT_FILENO, mpich_),
        err_(STDERR_FILENO, mpich_),
        job_(start(command, out_, err_)) {}

  JobEnd until_its_end() {
    while (!end_) {
      wait_for_news();
      look_at_children();
      if (!end_) look_at_clock();
    }
    kill_descendants(kKillSeconds);
    out_.take();
    err_.take();
    if (const std::optional<int> code = code_of_ranks(); code && !forced_) end_ = code;
    // mpirun's own codes for that say nothing to anybody: Open MPI's is 205, MPICH's depends on how it ended the others.
    if ((out_.peer_lost() || err_.peer_lost()) && !forced_ && *end_ != 0) end_ = static_cast<int>(ExitCode::kPeerLost);
    return {*end_, stop_at_.has_value()};
  }

 private:
  std::optional<int> code_of_ranks() const { return err_.ranks().code() ? err_.ranks().code() : out_.ranks().code(); }

  void wait_for_news() {
    std::array<pollfd, 3> wanted{{{out_.reading(), POLLIN, 0}, {err_.reading(), POLLIN, 0}, {signals_, POLLIN, 0}}};
    poll(wanted.data(), wanted.size(), kPollMilliseconds);
    if (wanted[0].revents != 0) out_.take();
    if (wanted[1].revents != 0) err_.take();
    if (!gave_up_at_ && (out_.rank_ended() || err_.rank_ended())) gave_up_at_ = Clock::now();
    if (!rank_ended_at_ && code_of_ranks()) rank_ended_at_ = Clock::now();
    while (const int signal = take_signal(signals_)) handle(signal);
  }

  void handle(int signal) {
    if (signal == SIGUSR1 || signal == SIGUSR2) pass_on(signal);
    if (!asks_to_stop(signal)) return;
    if (stop_at_) return end_by_force(128 + signal, "told to stop a second time");
    log::info("gau-launch: told to stop: asking for a checkpoint, for at most {} s", options_.patience);
    stop_at_ = Clock::now();
    pass_on(SIGUSR1);
  }

  void pass_on(int signal) const {
    if (!mpich_) {
      kill(job_, signal);
      return;
    }
    // One rank that is told tells the others, so those of this host are enough.
    for (const pid_t rank : descendants_below("hydra_pmi_proxy")) kill(rank, signal);
  }

  void look_at_children() {
    int status = 0;
    for (pid_t id = 0; !end_ && (id = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (id != job_) continue;  // an orphan that was adopted
      if (WIFSTOPPED(status)) {
        halted_at_ = Clock::now();
      } else if (WIFCONTINUED(status)) {
        halted_at_.reset();
      } else {
        end_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (const char* const rank = std::getenv("PMI_RANK"); rank != nullptr && *end_ != 0) {
          log::info("{}", end_of_rank(rank, host_name(), *end_));
        }
      }
    }
  }

  void look_at_clock() {
    constexpr int kLost = static_cast<int>(ExitCode::kPeerLost);
    const auto over = [](const std::optional<Clock::time_point>& since, double seconds) {
      return since && seconds_since(*since) >= seconds;
    };
    if (over(rank_ended_at_, kLagSeconds)) {
      kill_descendants(kKillSeconds);
      end_ = code_of_ranks();
    } else if (over(gave_up_at_, options_.grace)) {
      end_by_force(kLost, fmt::format("the job did not end {} s after a rank had", options_.grace));
    } else if (over(halted_at_, options_.grace)) {
      end_by_force(kLost, fmt::format("the launcher of the ranks has been stopped for {} s", options_.grace));
    } else if (over(stop_at_, options_.patience)) {
      end_by_force(128 + SIGKILL, fmt::format("no end {} s after the request to stop", options_.patience));
    }
  }

  void end_by_force(int code, const std::string& why) {
    forced_ = true;
    log::info("gau-launch: {}: killing it", why);
    kill_descendants(kKillSeconds);
    end_ = code;
  }

  WatchOptions options_;
  int signals_;
  bool mpich_;
  Output out_, err_;
  pid_t job_;
  std::optional<int> end_;
  bool forced_ = false;
  std::optional<Clock::time_point> gave_up_at_, halted_at_, stop_at_, rank_ended_at_;
};

}  // namespace

Supervisor::Supervisor(const WatchOptions& options) : options_(options) {
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  check(signals_ >= 0, ExitCode::kIo, "signals cannot be received: {}", std::strerror(errno));
  adopt_orphans();
}

Supervisor::~Supervisor() {
  close(signals_);
  const sigset_t set = handled_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

JobEnd Supervisor::run(const Command& command) { return Watch(options_, signals_, command).until_its_end(); }

bool Supervisor::pause(double seconds) {
  const auto begin = Clock::now();
  while (seconds_since(begin) < seconds) {
    pollfd wanted{signals_, POLLIN, 0};
    poll(&wanted, 1, kPollMilliseconds);
    while (const int signal = take_signal(signals_)) {
      if (asks_to_stop(signal) || signal == SIGUSR1) return false;
    }
  }
  return true;
}

}  // namespace gau::launch
