// What gau-launch starts: the command line of mpirun around a program, or the program alone.
//
// Open MPI and MPICH read other flags, so the kind is asked for once. Each rank gets its own cores where there are enough for
// all; else nothing is bound, since two ranks bound to one core leave others idle, and ranks that wait give the core away.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/config.h"

namespace gau::launch {

enum class MpiKind { kOpenMpi, kMpich };

struct Request {
  int ranks = 0;    ///< 0: one, or the slots of the host file
  int threads = 0;  ///< of a rank; 0: the cores divided by the ranks of a host
  std::string hostfile;
  std::string mpirun = "mpirun";
  std::vector<std::string> mpirun_arguments;  ///< handed on; placing ranks in them leaves it to them
  std::vector<std::string> program;
};

/// Variables over those of this process, and words.
struct Command {
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> words;
  bool mpich = false;  ///< MPICH's mpirun passes on no signals but ends at them, and its reports need explaining

  /// As a line for a shell.
  std::string str() const;
};

/// Hosts of a host file and the ranks that it offers: "node1 slots=4" or "node1:4", one a line; without a number 1.
struct Hosts {
  int count = 1;
  int slots = 1;
};
/// Throws Error(kIo) when it cannot be read, Error(kData) for a number that is none, or without any host.
Hosts read_hostfile(const std::string& path);

/// Asks `mpirun --version`. Throws Error(kUsage) when it does not run, or is neither Open MPI nor MPICH.
MpiKind find_mpi(const std::string& mpirun);

/// True when there is nothing to start but one process here.
bool is_single(const Request& request);

/// The whole command for a machine of `cores`. `kind` is not looked at when is_single().
Command job_command(const Request& request, MpiKind kind, int cores, const Environment& gau_variables = gau_environment());

/// Words of a line, split at spaces outside of quotes. Throws Error(kUsage) for a quote that does not end.
std::vector<std::string> split_words(const std::string& line);

/// `gau train …` for going on after a failure: from the newest checkpoint when there is one, else again from the start. Any
/// other program is returned as it is.
std::vector<std::string> restart_program(const std::vector<std::string>& program);

}  // namespace gau::launch
