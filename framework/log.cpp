// Lines on standard error and, when asked, in a file. One lock, so that lines of several threads never mix.
#include "framework/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "framework/error.h"

namespace gau::log {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::mutex mutex;
bool is_quiet = false;
std::string origin_text;
std::unique_ptr<std::FILE, CloseFile> copy;

void write_line(const std::string& line, bool to_terminal) {
  const std::string whole = line + "\n";
  const std::lock_guard lock(mutex);
  if (to_terminal) std::fwrite(whole.data(), 1, whole.size(), stderr);
  if (copy) {
    std::fwrite(whole.data(), 1, whole.size(), copy.get());
    std::fflush(copy.get());
  }
}

}  // namespace

void set_quiet(bool quiet) {
  const std::lock_guard lock(mutex);
  is_quiet = quiet;
}

bool quiet() {
  const std::lock_guard lock(mutex);
  return is_quiet;
}

void set_origin(const std::string& origin) {
  const std::lock_guard lock(mutex);
  origin_text = origin;
}

void set_file(const std::string& path) {
  std::unique_ptr<std::FILE, CloseFile> file;
  if (!path.empty()) {
    file.reset(std::fopen(path.c_str(), "ae"));
    check(file != nullptr, ExitCode::kIo, "{}: cannot be opened for the log: {}", path, std::strerror(errno));
  }
  const std::lock_guard lock(mutex);
  copy = std::move(file);
}

void info_line(const std::string& line) { write_line(line, !quiet()); }

void warn_line(const std::string& line) {
  std::string origin;
  {
    const std::lock_guard lock(mutex);
    origin = origin_text;
  }
  write_line("gau: " + origin + "warning: " + line, true);
}

bool interactive() {
  const char* const no_color = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace gau::log
