// Whether files and directories of ours are whole and consistent: what `gau verify` says.
#pragma once

#include <string>
#include <vector>

#include "framework/error.h"

namespace gau {

/// One thing that was checked.
struct Finding {
  std::string path;
  std::string kind;                 ///< "corpus", "model", "checkpoint", "link", …
  ExitCode code = ExitCode::kDone;  ///< kData: damaged or inconsistent; kIo: cannot be read
  std::string text;                 ///< what it is, or what is wrong with it

  bool ok() const { return code == ExitCode::kDone; }
};

/// Checks everything at `path`: digests, structure, finite values; of a run every checkpoint, the links, the configuration and
/// the metrics. What is wrong is a finding, not an exception.
std::vector<Finding> verify(const std::string& path);

}  // namespace gau
