// The error that an action ends with.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "framework/error.h"

namespace gau {

/// Of one line, as every message to people is; a failure when there is none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ExitCode::kDone, ""};
}

}  // namespace gau
