// The error that a job of several ranks ends with.
#pragma once

#include <functional>

#include "framework/error.h"
#include "framework/thread_ranks.h"

namespace gau {

/// Of `body` on `ranks` ranks; code kDone when there is none.
inline Error error_of(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_as_threads(ranks, body);
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::kDone, "no error"};
}

}  // namespace gau
