// The copy has no name any more when it is filled, so it goes away with the process, however that ends.
#include "data/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/error.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

/// A temporary file that is already unlinked, and its directory.
std::pair<int, std::string> nameless_file() {
  std::error_code error;
  const fs::path directory = fs::temp_directory_path(error);
  check(!error, ExitCode::kIo, "the temporary directory cannot be used: {}; set TMPDIR to one that can", error.message());
  std::string name = (directory / "gau-XXXXXX").string();
  const int id = mkstemp(name.data());
  check(id >= 0, ExitCode::kIo, "{}: no temporary file can be made: {}; set TMPDIR to another directory", directory.string(),
        std::strerror(errno));
  unlink(name.c_str());
  return {id, directory.string()};
}

void write_all(int id, const char* data, std::size_t size, const std::string& directory) {
  while (size > 0) {
    const ssize_t written = write(id, data, size);
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, ExitCode::kIo, "{}: the copy of the input cannot be written: {}; set TMPDIR to a larger directory",
          directory, std::strerror(written == 0 ? ENOSPC : errno));
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

void copy_all(int from, int to, const std::string& name, const std::string& directory) {
  std::vector<char> buffer(std::size_t{1} << 18);
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, ExitCode::kIo, "{}: cannot be read: {}", name, std::strerror(errno));
    if (got == 0) return;
    write_all(to, buffer.data(), static_cast<std::size_t>(got), directory);
  }
}

}  // namespace

Spool::Spool(const std::string& path) : path_(path), name_(path == "-" ? "(standard input)" : path) {
  struct stat status {};
  if (path != "-") {
    // What is not there or is a directory is named when it is opened for reading.
    const bool found = stat(path.c_str(), &status) == 0;
    if (!found || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return;
  }
  const int from = path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(from >= 0, ExitCode::kIo, "{}: cannot be opened: {}", name_, std::strerror(errno));
  try {
    const auto [id, directory] = nameless_file();
    id_ = id;
    copy_all(from, id_, name_, directory);
  } catch (...) {
    close(from);
    if (id_ >= 0) close(id_);
    throw;
  }
  close(from);
  path_ = fmt::format("/proc/self/fd/{}", id_);
}

Spool::Spool(Spool&& other) noexcept
    : path_(std::move(other.path_)), name_(std::move(other.name_)), id_(std::exchange(other.id_, -1)) {}

Spool::~Spool() {
  if (id_ >= 0) close(id_);
}

}  // namespace gau
