// What happens to a job when one rank fails, stops, leaves something out, computes nonsense or is told to end.
#include <unistd.h>

#include "tests/ranks/job.h"
#include "train/run_directory.h"

namespace gau {
namespace {

using testing::HasSubstr;

class RankFailuresSlow : public Job {
 protected:
  static std::string fault(int rank, int step, int bucket, int kind, const std::string& action) {
    return std::to_string(rank) + " " + std::to_string(step) + " " + std::to_string(bucket) + " " + std::to_string(kind) + " " +
           action;
  }
};

constexpr int kControl = 1, kGradient = 2, kSum = 3;

TEST_F(RankFailuresSlow, RankThatEndsEndsAllAndIsNamed) {
  for (const char* action : {"kill", "segv", "throw", "exit"}) {
    for (int rank = 0; rank < 3; ++rank) {
      const JobResult result = train(3, std::string(action) + std::to_string(rank), "", fault(rank, 4, 0, kGradient, action));
      const std::string what = std::string(action) + " on rank " + std::to_string(rank);
      EXPECT_NE(result.code, 0) << what;
      EXPECT_LE(result.seconds, 5) << what;
      EXPECT_EQ(result.left, 0) << what;
      EXPECT_THAT(result.err, HasSubstr("rank " + std::to_string(rank))) << what;
    }
  }
}

TEST_F(RankFailuresSlow, UncaughtExceptionIsOneLineWithTheRank) {
  const JobResult result = train(3, "run", "", fault(1, 4, 0, kGradient, "throw"));
  EXPECT_EQ(result.code, 70);
  EXPECT_THAT(result.err, testing::ContainsRegex("gau: rank 1 \\(.*\\): internal error: broken on purpose"));
}

TEST_F(RankFailuresSlow, StoppedRankIsGivenUpAndNamed) {
  for (int rank = 0; rank < 3; ++rank) {
    const JobResult result =
        train(3, "run" + std::to_string(rank), "--set train.timeout=2", fault(rank, 4, 0, kGradient, "stop"));
    EXPECT_EQ(result.code, 76) << result.err;
    EXPECT_LE(result.seconds, 2 + 4);
    EXPECT_EQ(result.left, 0);
    EXPECT_THAT(result.err,
                testing::ContainsRegex("waiting for rank " + std::to_string(rank) + " .*step 4, bucket 0, gradient"));
  }
}

TEST_F(RankFailuresSlow, MessageThatIsLeftOutIsFound) {
  const std::string buckets = "--set train.timeout=2 --set train.bucket=3000";
  for (const int kind : {kGradient, kSum}) {
    const JobResult result = train(3, "run" + std::to_string(kind), buckets, fault(1, 4, 0, kind, "skip"));
    EXPECT_EQ(result.code, 76) << result.err;
    EXPECT_LE(result.seconds, 2 + 4);
    EXPECT_THAT(result.err, HasSubstr("step 4, bucket 0"));
    EXPECT_EQ(result.left, 0);
  }
  const JobResult control = train(3, "control", buckets, fault(1, 4, -1, kControl, "skip"));
  EXPECT_EQ(control.code, 76) << control.err;
  EXPECT_THAT(control.err, HasSubstr("step 4"));
  EXPECT_LE(control.seconds, 2 + 4);
}

TEST_F(RankFailuresSlow, NotANumberIsSkippedEverywhere) {
  const JobResult once = train(3, "once", "--set train.bucket=3000 --check-replicas 1", fault(1, 4, 0, kGradient, "nan"));
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(once.json()["skipped_steps"], 1);
  EXPECT_THAT(once.err, HasSubstr("step 5 skipped: the gradient of gau_alpha."));

  const JobResult always = train(3, "always", "--set train.bucket=3000", fault(1, -1, 0, kGradient, "nan"));
  EXPECT_EQ(always.code, 70) << always.err;
  EXPECT_THAT(always.err, HasSubstr("5 steps in a row"));
  EXPECT_TRUE(std::filesystem::exists(output("always") + "/replay.json"));
  EXPECT_EQ(always.left, 0);
}

TEST_F(RankFailuresSlow, ReplicasThatDifferAreFound) {
  const std::string wrong = fault(2, 4, 0, kSum, "nan");
  const JobResult result = train(3, "run", "--set train.bucket=3000 --check-replicas 1", wrong);
  EXPECT_EQ(result.code, 70) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step 5: parameters are no longer equal: rank 2"));
}

TEST_F(RankFailuresSlow, OtherConfigurationOrDataIsRefusedBeforeTheFirstStep) {
  const auto with = [&](const std::string& name, const std::string& difference) {
    const std::string watched = is_mpich() ? "'" GAU_LAUNCH "' -- " : "";
    return run_command(launcher(2) + "'" GAU_PROGRAM "' " + train_arguments(name) + " : -n 1 " + watched +
                       "'" GAU_PROGRAM "' " + train_arguments(name, difference));
  };
  const JobResult rate = with("rate", "--set optim.lr=0.5");
  EXPECT_EQ(rate.code, 78) << rate.err;
  EXPECT_THAT(rate.err, HasSubstr("optim.lr=0.5"));
  EXPECT_FALSE(std::filesystem::exists(output("rate")));

  const std::string other = output("other.h5");
  run_gau("prepare '" GAU_SOURCE_DIR "/tests/data/sample.txt' -o '" + other + "' --valid 0.2 --test 0.1 --quiet");
  const JobResult data = with("data", "--set data.corpus='" + other + "'");
  EXPECT_EQ(data.code, 78) << data.err;
  EXPECT_THAT(data.err, HasSubstr("data digest"));
}

TEST_F(RankFailuresSlow, DirectoryOfARunThatGoesOnIsRefusedByAll) {
  const RunDirectory held(output("run"), RunStart::kFresh, 0);
  for (const char* more : {"", "--resume --set train.timeout=2"}) {
    const JobResult result = train(3, "run", more);
    EXPECT_EQ(result.code, 64) << result.err;
    EXPECT_THAT(result.err, HasSubstr("process " + std::to_string(getpid()) + " on "));
    EXPECT_EQ(result.left, 0);
    EXPECT_LE(result.seconds, 5);
  }
}

// A file size limit on one rank stands for a full disk there.
TEST_F(RankFailuresSlow, RankThatCannotSaveCostsACheckpointAndIsNamed) {
  const auto limited = [&](const std::string& name, const std::string& more, int kilobytes) {
    const std::string command = "'" GAU_PROGRAM "' " + train_arguments(name, more);
    // MPICH's own files of shared memory would meet the limit first.
    return run_command("env UCX_TLS=tcp,self " + launcher(1) + command + " : -n 1 bash -c 'ulimit -f " +
                       std::to_string(kilobytes) + "; exec \"$@\"' - " + command);
  };
  const JobResult result = limited("run", "--set train.save_every=4", 4);
  EXPECT_EQ(result.code, 74) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the checkpoint of step 4 could not be saved, the run goes on: rank 1"));
  EXPECT_EQ(result.left, 0);
  EXPECT_TRUE(std::filesystem::is_empty(output("run") + "/checkpoints"));
  // With room again the same directory holds a run.
  const JobResult again = train(2, "run", "--resume");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(checkpoint("run").size(), 10U);
}

TEST_F(RankFailuresSlow, SignalToOneRankStopsAllAfterOneStep) {
  const JobResult result = train(4, "run", "", fault(2, 5, -1, kControl, "usr1"));
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_EQ(result.json()["step"], 7) << "asked for while step 6 ended, united in step 7";
  EXPECT_EQ(checkpoint("run").size(), 10U);
  EXPECT_EQ(result.left, 0);
}

}  // namespace
}  // namespace gau
