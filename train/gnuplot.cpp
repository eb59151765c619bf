#include "train/gnuplot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/log.h"
#include "framework/read_file.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

/// A directory under the system's temporary one that goes away with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "gau-plot-XXXXXX").string();
    const bool made = !error && mkdtemp(pattern.data()) != nullptr;  // before the arguments below, one of which is errno
    check(made, ExitCode::kIo, "{}: cannot make a directory for plotting: {}; set TMPDIR to one that can be written", pattern,
          error ? error.message() : std::strerror(errno));
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

enum class Outcome { kDone, kMissing, kFailed };

/// Runs a program inside the directory, without a shell; what it says goes to `output` there.
Outcome run_program(const ScratchDirectory& directory, std::vector<std::string> words, const char* output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, directory.path().c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, directory.file(output).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT || error == EACCES) return Outcome::kMissing;
  check(error == 0, ExitCode::kIo, "{} cannot be started: {}", words[0], std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Outcome::kDone : Outcome::kFailed;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

bool fonts_have(const std::set<char32_t>& characters) {
  if (characters.empty()) return true;
  const ScratchDirectory directory;
  std::string charset = ":charset=";
  for (char32_t code : characters) charset += fmt::format("{:x} ", static_cast<std::uint32_t>(code));
  charset.pop_back();
  return run_program(directory, {"fc-list", charset}, "fonts.txt") == Outcome::kDone &&
         !read_file(directory.file("fonts.txt"), "a list of fonts").empty();
}

bool run_gnuplot(const std::vector<ScriptFile>& files, const std::vector<PictureFile>& pictures) {
  const ScratchDirectory directory;
  // -d: without the user's own start-up files.
  std::vector<std::string> words{"gnuplot", "-d"};
  for (const ScriptFile& file : files) {
    write_file(directory.file(file.name.c_str()), file.contents);
    if (file.name.ends_with(".gp")) words.push_back(file.name);
  }
  const Outcome outcome = run_program(directory, words, "messages.txt");
  if (outcome == Outcome::kMissing) {
    static bool warned = false;
    if (!warned) log::warn("gnuplot is not installed: no plots are written. On Debian or Ubuntu: apt-get install gnuplot-nox");
    warned = true;
    return false;
  }
  std::string messages = read_file(directory.file("messages.txt"), "messages");
  std::replace(messages.begin(), messages.end(), '\n', ' ');
  check(outcome == Outcome::kDone, ExitCode::kIo, "{}: gnuplot failed: {}", pictures.front().path, messages);
  for (const PictureFile& picture : pictures)
    write_file(picture.path, read_file(directory.file(picture.name.c_str()), "a picture"));
  return true;
}

}  // namespace gau
