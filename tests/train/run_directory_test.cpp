// One run a directory: who comes second is refused with the name of the first, and what was left behind is in nobody's way.
#include "train/run_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "framework/communicator.h"
#include "framework/log.h"
#include "tests/errors.h"
#include "tests/train/scratch.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { log::set_quiet(true); }
  void TearDown() override { log::set_quiet(false); }

  void take(const std::string& path, RunStart start = RunStart::kFresh, double patience = 0.1) const {
    const RunDirectory directory(path, start, patience);
  }

  Scratch scratch_;
  std::string run_ = scratch_.file("some/run");
};

TEST_F(RunDirectoryTest, SecondRunIsRefusedAndToldOfTheFirst) {
  const RunDirectory first(run_, RunStart::kFresh, 0);
  const std::string by = "process " + std::to_string(getpid()) + " on " + host_name() + " holds the directory";
  for (const RunStart start : {RunStart::kFresh, RunStart::kResume, RunStart::kOverwrite}) {
    const Error error = error_of([&] { take(run_, start); });
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(run_), HasSubstr(by)));
    const bool resumes = std::string(error.what()).find("the run to resume still goes on") != std::string::npos;
    EXPECT_EQ(resumes, start == RunStart::kResume);
  }
  take(scratch_.file("some/other"));
  fs::create_symlink(run_, scratch_.file("link"));
  EXPECT_EQ(error_of([&] { take(scratch_.file("link")); }).code(), ExitCode::kUsage);
}

TEST_F(RunDirectoryTest, RefusedOverwriteRemovesNothing) {
  const RunDirectory first(run_, RunStart::kFresh, 0);
  fs::create_directory(run_ + "/checkpoints");
  error_of([&] { take(run_, RunStart::kOverwrite); });
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints"));
}

TEST_F(RunDirectoryTest, FreeAgainWhenTheRunHasEnded) {
  take(run_);
  take(run_);
  // A refusal lets go too.
  fs::create_directory(run_ + "/checkpoints");
  EXPECT_THAT(error_of([&] { take(run_); }).what(), HasSubstr("--overwrite"));
  take(run_, RunStart::kResume, 0);
  take(run_, RunStart::kOverwrite);
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints"));
}

TEST_F(RunDirectoryTest, WhatAKilledRunLeftMeansNothing) {
  fs::create_directories(run_);
  std::ofstream(run_ + "/run.lock") << "process 1 on a host that is gone, a line longer than the next\n";
  const RunDirectory again(run_, RunStart::kFresh, 0);
  EXPECT_EQ(read_bytes(run_ + "/run.lock"), "process " + std::to_string(getpid()) + " on " + host_name() + "\n");
}

TEST_F(RunDirectoryTest, ResumingWaitsForAPredecessorThatEnds) {
  std::optional<RunDirectory> first(std::in_place, run_, RunStart::kFresh, 0);
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  take(run_, RunStart::kResume, 60);
  ending.join();
}

TEST_F(RunDirectoryTest, LinkInThePlaceOfTheLockIsNotFollowed) {
  fs::create_directories(run_);
  std::ofstream(scratch_.file("mine.txt")) << "mine";
  fs::create_symlink(scratch_.file("mine.txt"), run_ + "/run.lock");
  EXPECT_EQ(error_of([&] { take(run_); }).code(), ExitCode::kIo);
  EXPECT_EQ(read_bytes(scratch_.file("mine.txt")), "mine");
}

}  // namespace
}  // namespace gau
