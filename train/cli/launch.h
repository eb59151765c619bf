// gau-launch: starts a job of several ranks, watches it, ends what hangs, and starts it again after a failure.
#pragma once

namespace gau::cli {

/// Parses, runs, prints one line for an error, returns the job's exit code.
int launch(int argc, const char* const* argv);

}  // namespace gau::cli
