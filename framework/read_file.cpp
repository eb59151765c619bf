// The kind is asked of the path, since opening is what may wait; O_NONBLOCK keeps a pipe that takes the path in between from
// holding us up.
#include "framework/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/descriptor.h"
#include "framework/error.h"

namespace gau {
namespace {

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool is_readable(mode_t mode, FileSource source) {
  return S_ISREG(mode) || (source == FileSource::kFileOrStream && (S_ISFIFO(mode) || S_ISCHR(mode)));
}

/// What stands at `path`, when that may be read.
struct stat readable(const std::string& path, const char* what, FileSource source) {
  struct stat status {};
  // errno is read after the call: the order in which arguments are evaluated is open.
  const bool there = stat(path.c_str(), &status) == 0;
  check(there, ExitCode::kIo, "{}: cannot be opened as {}: {}", path, what, std::strerror(errno));
  check(is_readable(status.st_mode, source), ExitCode::kData, "{}: is no regular file but {}; put {} in its place", path,
        kind_name(status.st_mode), what);
  return status;
}

[[noreturn]] void fail_size(const std::string& path, const char* what, std::uint64_t most) {
  fail(ExitCode::kData, "{}: has more than {} bytes, the most that are read as {}; is it another file?", path, most, what);
}

}  // namespace

std::string read_file(const std::string& path, const char* what, std::uint64_t most, FileSource source) {
  const struct stat status = readable(path, what, source);
  const bool regular = S_ISREG(status.st_mode);
  if (regular && static_cast<std::uint64_t>(status.st_size) > most) fail_size(path, what, most);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0)));
  check(file.id() >= 0, ExitCode::kIo, "{}: cannot be opened as {}: {}", path, what, std::strerror(errno));
  constexpr std::uint64_t kPiece = 1 << 16;
  std::string text;
  // Until a read finds the end: pipes and files such as those below /proc do not tell their size.
  for (std::size_t done = 0;;) {
    text.resize(done + std::min(kPiece, most - done + 1));
    const ssize_t got = read(file.id(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
    done += static_cast<std::size_t>(got);
    text.resize(done);
    if (got == 0) return text;
    if (done > most) fail_size(path, what, most);
  }
}

std::ifstream open_file(const std::string& path, const char* what) {
  readable(path, what, FileSource::kFile);
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ExitCode::kIo, "{}: cannot be opened as {}: {}", path, what, std::strerror(errno));
  return file;
}

}  // namespace gau
