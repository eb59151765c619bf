// Jobs under gau-launch: ranks that are killed, an mpirun that is stopped, requests to stop, and going on after a failure.
#include "tests/ranks/job.h"

namespace gau {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class LaunchSlow : public Job {
 protected:
  static constexpr double kGrace = 2;

  std::string launch(const std::string& name, const std::string& options, const std::string& more) const {
    return "'" GAU_LAUNCH "' -n 2 --grace 2 --threads 1 --mpirun '" GAU_MPIRUN "' " + options + " -- '" GAU_PROGRAM "' " +
           train_arguments(name, more);
  }
  // Processes of the job that run `program`, by the beginning of their command line.
  std::vector<pid_t> processes(const std::string& program) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string line = read_text(entry.path() / "cmdline");
      if (line.starts_with(program + '\0') && line.find(output("")) != std::string::npos)
        found.push_back(std::stoi(entry.path().filename().string()));
    }
    return found;
  }
  bool has_checkpoint(const std::string& name) const { return std::filesystem::exists(output(name) + "/checkpoints/latest"); }

  // Starts, waits for a checkpoint, sends `signal` to one process of `program`, and measures from there.
  JobResult disturb(const std::string& command, const std::string& name, const std::string& program, int signal) const {
    Process process(command);
    EXPECT_TRUE(process.wait_until([&] { return has_checkpoint(name); })) << process.err();
    const std::vector<pid_t> targets = processes(program);
    EXPECT_FALSE(targets.empty());
    if (!targets.empty()) kill(targets.back(), signal);
    const auto begin = std::chrono::steady_clock::now();
    const ProgramResult program_result = process.wait();
    JobResult result{program_result.code, program_result.out, program_result.err};
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.left = processes_left();
    return result;
  }
};

TEST_F(LaunchSlow, KilledRankEndsTheJob) {
  const JobResult result =
      disturb(launch("run", "", "--set optim.steps=100000 --set train.save_every=20"), "run", GAU_PROGRAM, SIGKILL);
  EXPECT_THAT(result.code, AnyOf(76, 137)) << result.err;
  EXPECT_LE(result.seconds, 5 + kGrace);
  EXPECT_THAT(result.err, testing::ContainsRegex("rank [01]"));
  EXPECT_EQ(result.left, 0);
}

TEST_F(LaunchSlow, StoppedMpirunIsEnded) {
  const JobResult result =
      disturb(launch("run", "", "--set optim.steps=100000 --set train.save_every=20"), "run", GAU_MPIRUN, SIGSTOP);
  EXPECT_EQ(result.code, 76) << result.err;
  EXPECT_LE(result.seconds, 5 + kGrace);
  EXPECT_EQ(result.left, 0);
}

TEST_F(LaunchSlow, RestartEndsWithTheDigestOfAnUndisturbedRun) {
  const std::string steps = "--set optim.steps=600 --set train.save_every=20 --set train.eval_every=600 ";
  const JobResult wanted = run_command(launch("straight", "", steps));
  ASSERT_EQ(wanted.code, 0) << wanted.err;
  const JobResult result = disturb(launch("killed", "--restarts 1", steps), "killed", GAU_PROGRAM, SIGKILL);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("gau-launch: the job ended with"));
  EXPECT_EQ(result.json()["digest"], wanted.json()["digest"]);
  EXPECT_EQ(result.left, 0);
}

TEST_F(LaunchSlow, RequestToStopSavesFirst) {
  // Nothing is saved unless somebody asks.
  Process process(launch("run", "", "--set optim.steps=100000 --set train.save_every=100000"));
  const auto saved = [&] { return has_checkpoint("run"); };
  ASSERT_TRUE(process.wait_until([&] { return !read_text(output("run") + "/metrics.jsonl").empty(); })) << process.err();
  process.send(SIGUSR2);
  ASSERT_TRUE(process.wait_until(saved)) << process.err();
  process.send(SIGTERM);
  const ProgramResult result = process.wait();
  EXPECT_EQ(result.code, 75) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  const std::string step = std::to_string(json["step"].get<int>());
  EXPECT_TRUE(std::filesystem::exists(output("run") + "/checkpoints/step-" + step + "/manifest.json"));
  EXPECT_EQ(processes_left(), 0);
}

}  // namespace
}  // namespace gau
