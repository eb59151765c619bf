// Chosen by CMake where MPI is not found or not wanted: a job is one process.
#include "framework/communicator.h"
#include "framework/error.h"

namespace gau {

std::unique_ptr<Communicator> start_ranks() {
  const int launched = launched_ranks();
  check(launched == 1, ExitCode::kUsage,
        "a launcher started {} processes, and this build has no MPI: each of them would train on its own; build with MPI "
        "(libopenmpi-dev, -DGAU_MPI=ON) or start one process",
        launched);
  return single_rank();
}

const char* communication_library() { return "none"; }

}  // namespace gau
