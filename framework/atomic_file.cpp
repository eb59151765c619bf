// Temporary name, fsync, rename, fsync of the directory: after a crash or on a full disk either the old file or the new one is
// there.
//
// The temporary name holds the machine and the process, so that writers never share one, and so that the leavings of a killed
// process can be told from those of a living one.
#include "framework/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "framework/error.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".gau-tmp";

std::string directory_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string host_name() {
  std::array<char, 65> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

/// ".NAME.HOST." : what the temporaries of one target on this machine begin with.
std::string temporary_prefix(const std::string& target) {
  return fmt::format(".{}.{}.", fs::path(target).filename().string(), host_name());
}

/// True for PREFIX, PID, ".N.gau-tmp" of a process that is gone.
bool is_abandoned(std::string_view file, std::string_view prefix) {
  if (!file.starts_with(prefix) || !file.ends_with(kSuffix)) return false;
  const std::string_view rest = file.substr(prefix.size());
  pid_t process = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), process);
  if (parsed.ec != std::errc() || parsed.ptr == rest.data() + rest.size() || *parsed.ptr != '.' || process <= 0) return false;
  return kill(process, 0) != 0 && errno == ESRCH;
}

void remove_abandoned(const std::string& target) {
  const std::string prefix = temporary_prefix(target);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_of(target), ignored)) {
    if (is_abandoned(entry.path().filename().string(), prefix)) fs::remove_all(entry.path(), ignored);
  }
}

std::string resolve(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return path;
  check(status.type() == fs::file_type::regular, ExitCode::kIo,
        "{}: cannot be written: not a regular file; name another output", path);
  return fs::is_symlink(path, error) ? fs::canonical(path).string() : path;
}

[[noreturn]] void fail_errno(const std::string& path, const char* what, int number) {
  fail(ExitCode::kIo, "{}: {}: {}", path, what, std::strerror(number));
}

/// `path` without slashes at its end, symbolic links followed.
std::string resolve_directory(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  check(end != std::string::npos, ExitCode::kIo, "{}: cannot be written; name another output", path);
  const std::string plain = path.substr(0, end + 1);
  std::error_code error;
  const fs::file_status status = fs::status(plain, error);
  if (status.type() == fs::file_type::not_found) return plain;
  check(status.type() == fs::file_type::directory, ExitCode::kIo, "{}: cannot be written: not a directory; name another output",
        plain);
  return fs::canonical(plain).string();
}

/// A name beside `target` that no other writer has. Leavings of killed writers of the same target are removed.
std::string temporary_name(const std::string& target) {
  static std::atomic<unsigned> counter{0};
  remove_abandoned(target);
  return fmt::format("{}/{}{}.{}{}", directory_of(target), temporary_prefix(target), getpid(), counter++, kSuffix);
}

/// Swaps two names; on file systems that cannot, in steps. Returns an errno value, 0 for success.
int swap_names(const std::string& fresh, const std::string& old) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  const std::string aside = temporary_name(old);
  if (rename(old.c_str(), aside.c_str()) != 0) return errno;
  if (rename(fresh.c_str(), old.c_str()) == 0) return rename(aside.c_str(), fresh.c_str()) == 0 ? 0 : errno;
  const int number = errno;
  rename(aside.c_str(), old.c_str());
  return number;
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& path) : target_(resolve(path)), name_(temporary_name(target_)) {
  const int file = open(name_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) fail_errno(target_, "cannot be created", errno);
  close(file);
}

TemporaryFile::~TemporaryFile() {
  if (!published_) unlink(name_.c_str());
}

void TemporaryFile::publish() {
  sync_path(name_);
  if (rename(name_.c_str(), target_.c_str()) != 0) fail_errno(target_, "cannot be replaced", errno);
  published_ = true;
  sync_path(directory_of(target_));
}

TemporaryDirectory::TemporaryDirectory(const std::string& path)
    : target_(resolve_directory(path)), name_(temporary_name(target_)) {
  if (mkdir(name_.c_str(), 0777) != 0) fail_errno(target_, "cannot be created", errno);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(name_, ignored);
}

void TemporaryDirectory::publish(bool replace) {
  sync_path(name_);
  int number = rename(name_.c_str(), target_.c_str()) == 0 ? 0 : errno;
  if (replace && (number == ENOTEMPTY || number == EEXIST)) number = swap_names(name_, target_);
  if (number != 0) fail_errno(target_, "cannot be replaced", number);
  sync_path(directory_of(target_));
}

void sync_path(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_errno(path, "cannot be opened for syncing", errno);
  const int result = fsync(file);
  const int number = errno;
  close(file);
  // Some file systems cannot sync a directory; they say so by EINVAL.
  if (result != 0 && number != EINVAL) fail_errno(path, "cannot be synced to the disk", number);
}

void write_file(const std::string& path, std::string_view bytes) {
  TemporaryFile temporary(path);
  const int file = open(temporary.name().c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) fail_errno(path, "cannot be written", errno);
  int number = 0;
  for (std::size_t done = 0; done < bytes.size() && number == 0;) {
    const ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      number = written == 0 ? ENOSPC : errno;
    }
  }
  if (close(file) != 0 && number == 0) number = errno;
  if (number != 0) fail_errno(path, "cannot be written", number);
  temporary.publish();
}

}  // namespace gau
