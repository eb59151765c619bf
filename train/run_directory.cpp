#include "train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "framework/communicator.h"
#include "framework/error.h"
#include "framework/log.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLockFile = "run.lock";
constexpr auto kBetweenTries = std::chrono::milliseconds(50);

// Everything that a run leaves in its directory, and nothing of anybody else's. Not the lock: it is held while these go.
constexpr const char* kRunFiles[] = {"config.toml", "metrics.jsonl", "log.txt", "replay.json", "checkpoints"};

void make_directory(const fs::path& run) {
  std::error_code error;
  fs::create_directories(run, error);
  check(!error, ExitCode::kIo, "{}: cannot make the run directory: {}", run.string(), error.message());
}

/// Neither follows a link to a file of somebody else nor waits for a pipe.
int open_lock(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  check(file >= 0, ExitCode::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  return file;
}

/// What the holder wrote; it may not have come to that yet.
std::string holder(int file) {
  std::array<char, 300> text{};
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  const std::string all(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const std::string line = all.substr(0, all.find('\n'));
  const bool plain = std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= ' ' && c < 127; });
  return line.empty() || !plain ? "another process" : line;
}

/// A name that cannot be written is missing in a message, no more.
void write_holder(int file) {
  const std::string text = fmt::format("process {} on {}\n", getpid(), host_name());
  if (ftruncate(file, 0) != 0 || pwrite(file, text.data(), text.size(), 0) < 0) return;
}

bool knows_no_locks(int number) { return number == ENOLCK || number == ENOSYS || number == EOPNOTSUPP || number == EINVAL; }

[[noreturn]] void fail_held(const std::string& run, const std::string& by, RunStart start) {
  if (start == RunStart::kResume) {
    fail(ExitCode::kUsage,
         "{}: the run to resume still goes on: {} holds the directory; wait until it ends, or stop it (SIGUSR1 saves first), "
         "and resume then",
         run, by);
  }
  fail(ExitCode::kUsage,
       "{}: another run goes on there: {} holds the directory; give another [train] output, or stop that run first", run, by);
}

void take_lock(int file, const std::string& run, RunStart start, double patience) {
  const auto begin = Clock::now();
  bool told = false;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (knows_no_locks(errno)) {
      log::warn("{}: its file system has no locks ({}): nothing keeps another run from saving there too", run,
                std::strerror(errno));
      return;
    }
    check(errno == EWOULDBLOCK, ExitCode::kIo, "{}/{}: cannot be locked: {}", run, kLockFile, std::strerror(errno));
    if (start != RunStart::kResume || std::chrono::duration<double>(Clock::now() - begin).count() >= patience)
      fail_held(run, holder(file), start);
    if (!told) log::info("{}: waiting for {} to end", run, holder(file));
    told = true;
    std::this_thread::sleep_for(kBetweenTries);
  }
  write_holder(file);
}

void clear(const fs::path& run, RunStart start) {
  const bool used =
      std::any_of(std::begin(kRunFiles), std::end(kRunFiles), [&](const char* name) { return fs::exists(run / name); });
  if (!used || start == RunStart::kResume) return;
  check(start == RunStart::kOverwrite, ExitCode::kUsage,
        "{} holds an earlier run: give --resume to continue it, --overwrite to start anew, or another [train] output",
        run.string());
  for (const char* name : kRunFiles) {
    std::error_code error;
    fs::remove_all(run / name, error);
    check(!error, ExitCode::kIo, "{}: cannot remove: {}", (run / name).string(), error.message());
  }
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, RunStart start, double patience)
    : lock_((make_directory(path), open_lock(path + "/" + kLockFile))) {
  take_lock(lock_.id(), path, start, patience);
  clear(path, start);
}

}  // namespace gau
