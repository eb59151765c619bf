#include "train/start_checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "framework/digest.h"
#include "framework/error.h"

namespace gau {
namespace {

// Checked in another way, or without effect on what ranks do together.
constexpr std::array kOwn{"data.corpus", "train.threads", "train.log_every", "train.log_entropy", "train.timeout"};

bool is_own(const std::string& key) {
  return key.starts_with("eval.") || std::find(kOwn.begin(), kOwn.end(), key) != kOwn.end();
}

// A line a fact; values are escaped so that each stays on its line.
std::string text_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    std::string line = name + "=" + value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Facts shared_settings(const Config& config) {
  Facts facts;
  for (const auto& [key, value] : config_values(config, false)) {
    if (!is_own(key)) facts.emplace_back(key, value);
  }
  return facts;
}

void check_agreement(Communicator& ranks, const Facts& facts) {
  const std::vector<std::string> all = ranks.all_gather_text({MessageKind::kStart}, text_of(facts));
  const std::vector<std::string> wanted = lines_of(all[0]);
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::vector<std::string> lines = lines_of(all[static_cast<std::size_t>(rank)]);
    for (std::size_t i = 0; i < std::max(lines.size(), wanted.size()); ++i) {
      const std::string here = i < lines.size() ? lines[i] : "nothing", there = i < wanted.size() ? wanted[i] : "nothing";
      if (here == there) continue;
      fail(ExitCode::kConfigDiffers,
           "{} has {}, {} has {}: all ranks need the same; look at files, GAU_ variables and --set on each",
           ranks.describe(rank), here, ranks.describe(0), there);
    }
  }
}

Neighbours neighbours(const Communicator& ranks) {
  Neighbours here{0, true};
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (ranks.host(rank) != ranks.host()) continue;
    ++here.ranks;
    here.is_first = here.is_first && rank >= ranks.rank();
  }
  return here;
}

int default_threads(int processors, int online, int ranks_here) {
  return processors == online ? std::max(1, processors / ranks_here) : processors;
}

std::string binding_advice(int threads, int processors, int ranks) {
  if (threads <= processors || ranks == 1) return "";
  return fmt::format(
      "{} threads on {} processor{} that this rank may use; give mpirun --map-by slot:PE={} or --bind-to none, or set "
      "[train] threads = {}",
      threads, processors, processors == 1 ? "" : "s", threads, processors);
}

void check_replicas(Communicator& ranks, std::int64_t step, std::uint64_t digest) {
  const std::vector<std::uint64_t> all = ranks.all_gather({MessageKind::kReplicas, step}, digest);
  std::map<std::uint64_t, int> votes;
  for (const std::uint64_t one : all) ++votes[one];
  if (votes.size() == 1) return;
  const auto most = std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  std::string others;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::uint64_t one = all[static_cast<std::size_t>(rank)];
    if (one != most->first)
      others += fmt::format("{}{} has {}", others.empty() ? "" : ", ", ranks.describe(rank), digest_text(one));
  }
  fail(ExitCode::kNumeric, "step {}: parameters are no longer equal: {}, {} of {} ranks have {}; a machine computes wrongly",
       step, others, most->second, ranks.size(), digest_text(most->first));
}

}  // namespace gau
