// Log lines: to standard error, hidden when quiet, copied to a file.
#include "framework/log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "framework/error.h"

namespace gau {
namespace {

TEST(Log, QuietHidesInformationAlone) {
  ::testing::internal::CaptureStderr();
  log::info("shown {}", 1);
  log::set_quiet(true);
  log::info("hidden");
  log::warn("kept {}", 2);
  log::set_quiet(false);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "shown 1\ngau: warning: kept 2\n");
}

TEST(Log, FileHoldsEveryLine) {
  const std::string path = ::testing::TempDir() + "gau_log_test.txt";
  std::remove(path.c_str());
  ::testing::internal::CaptureStderr();
  log::set_file(path);
  log::set_quiet(true);
  log::info("one");
  log::set_quiet(false);
  log::warn("two");
  log::set_file("");
  log::info("three");
  ::testing::internal::GetCapturedStderr();
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, "one\ngau: warning: two\n");
  std::remove(path.c_str());
}

TEST(Log, FileThatCannotBeOpened) {
  try {
    log::set_file("/nonexistent-folder/log.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_NE(std::string(error.what()).find("/nonexistent-folder/log.txt"), std::string::npos);
  }
}

}  // namespace
}  // namespace gau
