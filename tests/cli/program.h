// Runs the program GAU_PROGRAM as a user does, and keeps what it printed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gau {

struct ProgramResult {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A directory of its own, removed at the end.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "gau-cli-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::perror("mkdtemp");
    path_ = name;
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  std::filesystem::path path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

/// Runs `gau ARGUMENTS` through the shell; `before` may set variables ("LC_ALL=de_DE.UTF-8").
inline ProgramResult run_gau(const std::string& arguments, const std::string& before = "") {
  const TestDirectory scratch;
  const std::string command =
      before + " '" GAU_PROGRAM "' " + arguments + " >'" + scratch.file("out") + "' 2>'" + scratch.file("err") + "' </dev/null";
  const int status = std::system(command.c_str());
  ProgramResult result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_text(scratch.path() / "out");
  result.err = read_text(scratch.path() / "err");
  return result;
}

}  // namespace gau
