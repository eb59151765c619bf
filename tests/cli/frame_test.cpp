// The frame of the program: help, version, exit codes and one-line errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program.h"

namespace gau {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void expect_one_line_error(const ProgramResult& result, int code) {
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("gau: "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(Frame, HelpGoesToStandardOutputAndSucceeds) {
  const auto result = run_gau("--help");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  for (const char* word : {"prepare", "train", "eval", "predict", "fill", "info", "gradcheck", "Examples:"})
    EXPECT_THAT(result.out, HasSubstr(word));
}

TEST(Frame, EveryCommandHasHelpWithAnExample) {
  for (const std::string command : {"prepare", "train", "eval", "predict", "fill", "info", "gradcheck"}) {
    const auto result = run_gau(command + " --help");
    EXPECT_EQ(result.code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("gau " + command + " ")) << command;
  }
}

TEST(Frame, VersionSucceeds) {
  const auto result = run_gau("--version");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, StartsWith("gau "));
}

TEST(Frame, NoCommandIsAUsageError) { expect_one_line_error(run_gau(""), 64); }

TEST(Frame, UnknownCommandNamesTheNearest) {
  const auto result = run_gau("trian x.toml");
  expect_one_line_error(result, 64);
  EXPECT_THAT(result.err, HasSubstr("'train'"));
}

TEST(Frame, UnknownOptionNamesTheNearest) {
  const auto result = run_gau("info --jsn file");
  expect_one_line_error(result, 64);
  EXPECT_THAT(result.err, HasSubstr("--jsn"));
  EXPECT_THAT(result.err, HasSubstr("'--json'"));
}

TEST(Frame, MissingArgumentIsAUsageError) { expect_one_line_error(run_gau("info"), 64); }

TEST(Frame, MissingFileIsAnIoError) {
  const auto result = run_gau("info /nowhere/at/all");
  expect_one_line_error(result, 74);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/at/all"));
}

TEST(Frame, FullStandardOutputIsAnIoError) {
  const TestDirectory directory;
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const std::string config = directory.write("c.toml", "[model]\nvocab_size = 100\n");
  const int status = std::system(("'" GAU_PROGRAM "' info '" + config + "' >/dev/full 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 74);
}

}  // namespace
}  // namespace gau
