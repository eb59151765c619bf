// What a rank says when it crashes or leaves, in processes of their own.
#include "framework/last_words.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace gau {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

TEST(LastWordsDeathTest, CrashIsNamedAndTakesItsCourse) {
  for (const int signal : {SIGSEGV, SIGABRT}) {
    const auto crash = [&] {
      promise_last_words("rank 1 (b)");
      raise(signal);
    };
    EXPECT_EXIT(crash(), KilledBySignal(signal), "gau: rank 1 \\(b\\): ended by signal " + std::to_string(signal));
  }
}

TEST(LastWordsDeathTest, EarlyExitIsAFailure) {
  const auto leave = [](bool over) {
    promise_last_words("rank 1 (b)");
    if (over) forget_last_words();
    std::exit(0);
  };
  EXPECT_EXIT(leave(false), ExitedWithCode(76), "gau: rank 1 \\(b\\): left before the job was over");
  EXPECT_EXIT(leave(true), ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gau
