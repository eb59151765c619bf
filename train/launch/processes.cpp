#include "train/launch/processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace gau::launch {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  pid_t parent = 0;
  bool zombie = false;
};

// "PID (name) STATE PARENT …"; the name may hold anything.
bool read_entry(const fs::path& directory, Entry& entry) {
  std::ifstream file(directory / "stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 >= line.size()) return false;
  const std::size_t begin = line.find('(') + 1;
  entry.name = line.substr(begin, end - begin);
  entry.zombie = line[end + 2] == 'Z';
  return std::from_chars(line.data() + end + 4, line.data() + line.size(), entry.parent).ec == std::errc();
}

std::map<pid_t, Entry> all_processes() {
  std::map<pid_t, Entry> all;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t id = 0;
    const auto result = std::from_chars(name.data(), name.data() + name.size(), id);
    Entry entry;
    if (result.ec == std::errc() && result.ptr == name.data() + name.size() && read_entry(it->path(), entry)) all[id] = entry;
  }
  return all;
}

std::vector<pid_t> descendants_among(const std::map<pid_t, Entry>& all) {
  const pid_t self = getpid();
  std::vector<pid_t> found;
  for (const auto& [id, entry] : all) {
    if (id == self || entry.zombie) continue;
    pid_t ancestor = entry.parent;
    // A chain of parents is short; a process that ended while we read may break it, never close it.
    for (int depth = 0; depth < 1000 && ancestor > 1 && ancestor != self; ++depth) {
      const auto parent = all.find(ancestor);
      ancestor = parent == all.end() ? 0 : parent->second.parent;
    }
    if (ancestor == self) found.push_back(id);
  }
  return found;
}

}  // namespace

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> descendants() { return descendants_among(all_processes()); }

std::vector<pid_t> descendants_below(const std::string& parent) {
  const std::map<pid_t, Entry> all = all_processes();
  std::vector<pid_t> found;
  for (const pid_t id : descendants_among(all)) {
    const auto above = all.find(all.at(id).parent);
    if (above != all.end() && above->second.name == parent) found.push_back(id);
  }
  return found;
}

void kill_descendants(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    const std::vector<pid_t> left = descendants();
    if (left.empty()) break;
    for (const pid_t id : left) kill(id, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace gau::launch
