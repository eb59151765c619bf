// What ranks compare before the first step, and between steps.
#include "train/start_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/error.h"
#include "framework/thread_ranks.h"
#include "tests/rank_errors.h"

namespace gau {
namespace {

using testing::HasSubstr;

TEST(StartChecks, TheFirstDifferenceIsNamed) {
  const Error error = error_of(3, [](Communicator& ranks) {
    Config config;
    if (ranks.rank() == 2) config.optim.lr = 0.25;
    if (ranks.rank() == 2) config.train.seed = 9;
    check_agreement(ranks, shared_settings(config));
  });
  EXPECT_EQ(error.code(), ExitCode::kConfigDiffers);
  EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  EXPECT_THAT(error.what(), HasSubstr("optim.lr=0.25"));
}

TEST(StartChecks, WhatBelongsToAMachineMayDiffer) {
  const Error error = error_of(2, [](Communicator& ranks) {
    Config config;
    config.train.threads = 1 + ranks.rank();
    config.data.corpus = ranks.rank() == 0 ? "here.h5" : "there.h5";
    config.eval.methods = ranks.rank() == 0 ? "rope" : "yarn";
    check_agreement(ranks, shared_settings(config));
  });
  EXPECT_EQ(error.code(), ExitCode::kDone) << error.what();
}

// What decides when all save, or where, must be equal although it decides no figure.
TEST(StartChecks, WhatAllDoTogetherMayNot) {
  for (const bool output : {false, true}) {
    const Error error = error_of(2, [&](Communicator& ranks) {
      Config config;
      if (ranks.rank() == 1 && output) config.train.output += "x";
      if (ranks.rank() == 1 && !output) ++config.train.save_every;
      check_agreement(ranks, shared_settings(config));
    });
    EXPECT_EQ(error.code(), ExitCode::kConfigDiffers);
    EXPECT_THAT(error.what(), HasSubstr(output ? "train.output" : "train.save_every"));
  }
}

TEST(StartChecks, ReplicaThatIsAloneIsNamed) {
  EXPECT_EQ(error_of(4, [](Communicator& ranks) { check_replicas(ranks, 5, 77); }).code(), ExitCode::kDone);
  const Error error = error_of(4, [](Communicator& ranks) { check_replicas(ranks, 5, ranks.rank() == 3 ? 78 : 77); });
  EXPECT_EQ(error.code(), ExitCode::kNumeric);
  EXPECT_THAT(error.what(), HasSubstr("step 5"));
  EXPECT_THAT(error.what(), HasSubstr("rank 3 (thread) has 000000000000004e"));
}

TEST(StartChecks, ThreadsAndBinding) {
  EXPECT_EQ(default_threads(16, 16, 4), 4);
  EXPECT_EQ(default_threads(2, 2, 8), 1);
  EXPECT_EQ(default_threads(4, 16, 4), 4) << "bound by the launcher";
  EXPECT_EQ(binding_advice(4, 4, 2), "");
  EXPECT_EQ(binding_advice(4, 1, 1), "");
  EXPECT_THAT(binding_advice(4, 1, 2), HasSubstr("--map-by slot:PE=4"));
  run_as_threads(3, [](Communicator& ranks) {
    EXPECT_EQ(neighbours(ranks).ranks, 3);
    EXPECT_EQ(neighbours(ranks).is_first, ranks.rank() == 0);
  });
}

}  // namespace
}  // namespace gau
