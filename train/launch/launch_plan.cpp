// Command lines of mpirun, and of a training that goes on.
#include "train/launch/launch_plan.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "framework/error.h"
#include "framework/read_file.h"
#include "train/checkpoint_store.h"

namespace gau::launch {
namespace {

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int slots_of(const std::string& line, const std::string& path) {
  std::size_t at = line.find("slots=");
  if (at != std::string::npos) {
    at += 6;
  } else {
    at = line.find(':');
    if (at == std::string::npos) return 1;
    ++at;
  }
  int slots = 0;
  const auto result = std::from_chars(line.data() + at, line.data() + line.size(), slots);
  check(result.ec == std::errc() && slots >= 1, ExitCode::kData,
        "{}: '{}': the number of slots is not a whole number of at least 1", path, line);
  return slots;
}

bool places_ranks(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const std::string name = word.substr(word.find_first_not_of('-') == std::string::npos ? 0 : word.find_first_not_of('-'));
    return word.starts_with("-") && (name.starts_with("bind-to") || name.starts_with("map-by") || name.starts_with("rank") ||
                                     name == "rf" || name == "cpu-set");
  });
}

bool mentions(const std::vector<std::string>& words, const std::string& name) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return word.starts_with(name); });
}

struct Placement {
  int ranks;
  int threads;
  bool enough_cores;
};

Placement place(const Request& request, const Hosts& hosts, int cores) {
  const int ranks = request.ranks > 0 ? request.ranks : hosts.slots;
  const int on_host = (ranks + hosts.count - 1) / hosts.count;
  const int threads = request.threads > 0 ? request.threads : std::max(1, cores / on_host);
  return {ranks, threads, on_host * threads <= cores};
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void add_open_mpi(Command& command, const Request& request, const Placement& placement, const Environment& gau_variables) {
  if (geteuid() == 0) {
    command.variables.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.variables.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  if (!request.hostfile.empty()) {
    append(command.words, {"--hostfile", request.hostfile});
    // A host that has vanished says nothing; without questions mpirun, and what it started there, would wait for ever. 330 s in
    // all, a little more than the ranks themselves wait for each other by default.
    if (!mentions(request.mpirun_arguments, "oob_tcp_keepalive")) {
      append(command.words, {"--mca", "oob_tcp_keepalive_time", "60", "--mca", "oob_tcp_keepalive_intvl", "30", "--mca",
                             "oob_tcp_keepalive_probes", "9"});
    }
    for (const auto& variable : gau_variables) append(command.words, {"-x", variable.first});
    append(command.words, {"-x", "OMP_NUM_THREADS"});
  }
  if (!placement.enough_cores) command.variables.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  if (places_ranks(request.mpirun_arguments)) return;
  if (placement.enough_cores) {
    append(command.words, {"--map-by", fmt::format("slot:PE={}", placement.threads), "--bind-to", "core"});
  } else {
    append(command.words, {"--oversubscribe", "--bind-to", "none"});
  }
}

void add_mpich(Command& command, const Request& request, const Placement& placement) {
  command.mpich = true;
  if (!request.hostfile.empty()) append(command.words, {"-f", request.hostfile});
  if (places_ranks(request.mpirun_arguments)) return;
  append(command.words, {"-bind-to", placement.enough_cores ? fmt::format("core:{}", placement.threads) : "none"});
}

struct TrainWords {
  std::vector<std::string> kept;  // without what says how to start
  std::string config;
  std::vector<std::string> settings;
  std::vector<std::string> init_from;  // as it was written; empty: not given
};

// The words of `gau train …` that decide whether there is something to go on from.
TrainWords read_train_words(const std::vector<std::string>& program) {
  TrainWords read;
  read.kept.assign(program.begin(), program.begin() + 2);
  for (std::size_t i = 2; i < program.size(); ++i) {
    const std::string& word = program[i];
    if (word == "--resume" || word == "--overwrite") continue;
    const std::size_t equals = word.find('=');
    const std::string name = word.starts_with("--") ? word.substr(0, equals) : "";
    std::vector<std::string> group{word};
    const bool takes_value = name == "--set" || name == "--init-from" || name == "--check-replicas";
    if (takes_value && equals == std::string::npos && i + 1 < program.size()) group.push_back(program[++i]);
    const std::string value = group.size() > 1 ? group[1] : equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "--set") read.settings.push_back(value);
    if (name.empty() && !word.starts_with("-")) read.config = word;
    append(name == "--init-from" ? read.init_from : read.kept, group);
  }
  return read;
}

}  // namespace

std::string Command::str() const {
  std::string line;
  for (const auto& [name, value] : variables) line += name + "=" + shell_quoted(value) + " ";
  for (const std::string& word : words) line += shell_quoted(word) + " ";
  if (!line.empty()) line.pop_back();
  return line;
}

Hosts read_hostfile(const std::string& path) {
  std::istringstream file(read_file(path, "a host file"));
  Hosts hosts{0, 0};
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    hosts.count += 1;
    hosts.slots += slots_of(line, path);
  }
  check(hosts.count > 0, ExitCode::kData, "{}: the host file names no host", path);
  return hosts;
}

MpiKind find_mpi(const std::string& mpirun) {
  std::string text;
  std::FILE* const pipe = popen((shell_quoted(mpirun) + " --version 2>/dev/null").c_str(), "r");
  check(pipe != nullptr, ExitCode::kIo, "{}: cannot be started", mpirun);
  std::array<char, 512> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  const int status = pclose(pipe);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, ExitCode::kUsage,
        "{} does not run: install an MPI (openmpi-bin), name its mpirun with --mpirun, or start one rank with -n 1", mpirun);
  if (text.find("Open MPI") != std::string::npos || text.find("open-mpi") != std::string::npos) return MpiKind::kOpenMpi;
  if (text.find("HYDRA") != std::string::npos || text.find("MPICH") != std::string::npos) return MpiKind::kMpich;
  fail(ExitCode::kUsage, "{} is neither of Open MPI nor of MPICH; name another with --mpirun", mpirun);
}

bool is_single(const Request& request) { return request.ranks <= 1 && request.hostfile.empty(); }

Command job_command(const Request& request, MpiKind kind, int cores, const Environment& gau_variables) {
  Command command;
  if (is_single(request)) {
    if (request.threads > 0) command.variables.emplace_back("OMP_NUM_THREADS", std::to_string(request.threads));
    command.words = request.program;
    return command;
  }
  const Placement placement = place(request, request.hostfile.empty() ? Hosts{} : read_hostfile(request.hostfile), cores);
  command.variables.emplace_back("OMP_NUM_THREADS", std::to_string(placement.threads));
  command.words = {request.mpirun, "-n", std::to_string(placement.ranks)};
  if (kind == MpiKind::kOpenMpi) {
    add_open_mpi(command, request, placement, gau_variables);
  } else {
    add_mpich(command, request, placement);
  }
  append(command.words, request.mpirun_arguments);
  // See mpich_report.h.
  if (kind == MpiKind::kMpich) append(command.words, {std::filesystem::read_symlink("/proc/self/exe").string(), "--"});
  append(command.words, request.program);
  return command;
}

std::vector<std::string> split_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  check(quote == 0, ExitCode::kUsage, "'{}': a quote does not end", line);
  if (inside) words.push_back(word);
  return words;
}

std::vector<std::string> restart_program(const std::vector<std::string>& program) {
  if (program.size() < 3 || program[1] != "train") return program;
  TrainWords words = read_train_words(program);
  const TrainConfig train = load_config(words.config, words.settings).train;
  const bool has_checkpoint = !CheckpointStore(train.output, train.keep).steps().empty();
  // Resuming without a checkpoint starts from fresh parameters, which is not what --init-from asked for.
  if (!has_checkpoint && !words.init_from.empty()) {
    append(words.kept, words.init_from);
    words.kept.emplace_back("--overwrite");
  } else {
    words.kept.emplace_back("--resume");
  }
  return words.kept;
}

}  // namespace gau::launch
