// Errors with an exit code.
//
// Everything that a caller, a file or a machine can get wrong throws gau::Error with one line: what, where, what to do.
// The command line prints that line and exits with the code; the library itself never exits. Our own invariants use assert.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace gau {

/// Exit codes of the program, after sysexits.h where one fits.
enum class ExitCode : int {
  kDone = 0,
  kUsage = 64,          ///< command line, --set and --methods
  kData = 65,           ///< bad data, file or configuration file
  kNumeric = 70,        ///< not-a-number or infinity where training cannot go on
  kIo = 74,             ///< input or output failed
  kStopped = 75,        ///< stopped on request, after a checkpoint
  kPeerLost = 76,       ///< another rank is gone
  kConfigDiffers = 78,  ///< ranks were started with different configurations
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(code) with the formatted message unless `condition` holds. Active in every build.
template <class... Args>
void check(bool condition, ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace gau
