// How the ranks of an MPICH job ended.
//
// MPICH's launcher, hydra, reports a failure in the middle of the job's standard output, names a process that it has killed
// itself rather than the rank that failed, and has the exit codes of all ranks, bit by bit, as its own (70 and 76 make 78). So
// each rank is started by a gau-launch of its own, which says how it ended in a line that the one above reads here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gau::launch {

/// The line about rank `rank`, without its end.
std::string end_of_rank(std::string_view rank, std::string_view host, int code);

/// True for lines of hydra's own report.
bool is_of_hydra(std::string_view line);

/// Collects the ends of ranks out of the lines of a job.
class RankEnds {
 public:
  void take(std::string_view line);

  /// What the ranks make of the job, if one has ended with another code than 0: a rank's own code before 76, which others have
  /// because of it, and that before 128 + a signal; of several the first.
  std::optional<int> code() const { return code_; }

 private:
  std::optional<int> code_;
};

}  // namespace gau::launch
