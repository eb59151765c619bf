// gau-launch with stand-ins for mpirun that hang, fail and refuse to stop: no MPI is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/cli/process.h"
#include "train/launch/launch_plan.h"

namespace gau {
namespace {

using testing::HasSubstr;
using testing::Not;

class Launch : public testing::Test {
 protected:
  // A program of that name that calls itself an Open MPI and then does `body`.
  std::string script(const std::string& name, const std::string& body) const {
    const std::string path = directory_.write(
        name, "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'mpirun (Open MPI) 4.1.4'; exit 0; fi\n" + body + "\n");
    chmod(path.c_str(), 0700);
    return path;
  }
  static std::string launch(const std::string& arguments) { return "'" GAU_LAUNCH "' " + arguments; }
  ProgramResult run(const std::string& arguments) const { return Process(launch(arguments)).wait(); }
  ProgramResult run_as(const std::string& body, const std::string& arguments) const {
    return run("-n 2 --mpirun '" + script("mpirun", body) + "' " + arguments + " -- gau train c.toml");
  }
  // Starts a rank that works for ever, in a session of its own.
  std::string rank() const {
    return "setsid sh -c 'while :; do sleep 0.1; done' '" + directory_.path().string() + "' >/dev/null 2>&1 & ";
  }
  // Processes whose command line names this test's directory, gone after a moment.
  bool nothing_left() const {
    for (int attempt = 0; attempt < 40; ++attempt) {
      bool found = false;
      for (const auto& entry : std::filesystem::directory_iterator("/proc"))
        found = found || read_text(entry.path() / "cmdline").find(directory_.path().string()) != std::string::npos;
      if (!found) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  TestDirectory directory_;
};

TEST_F(Launch, UsageErrorsAreOneLine) {
  for (const char* arguments :
       {"", "-n 2", "-n 2 --", "--rankss 2 -- x", "-n zwei -- x", "-n 0 -- x", "gau train -- x", "--mpirun-args \"'open\" -- x",
        "-n 2 --mpirun true -- x", "-n 2 --mpirun missing-mpirun -- x", "--grace -1 -- x", "-- missing-program"}) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.code, 64) << arguments;
    EXPECT_TRUE(result.err.starts_with("gau-launch: ")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_THAT(run("--rankss 2 -- x").err, HasSubstr("did you mean '--ranks'?"));
}

TEST_F(Launch, OneRankIsTheProgramItself) {
  const ProgramResult result = run("-- sh -c 'echo out; echo err >&2; exit 65'");
  EXPECT_EQ(result.code, 65);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(run("-- sh -c 'kill -9 $$'").code, 137);
  EXPECT_EQ(run("--dry-run -- gau train 'a b.toml'").out, "gau train 'a b.toml'\n");
}

TEST_F(Launch, CommandSuitsCoresAndHosts) {
  launch::Request request;
  request.program = {"gau", "train", "c.toml"};
  request.ranks = 4;
  const auto line = [&](launch::MpiKind kind, int cores) {
    return launch::job_command(request, kind, cores, {{"GAU_OPTIM_LR", "1"}}).str();
  };
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("OMP_NUM_THREADS=2 "));
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("mpirun -n 4 --map-by slot:PE=2 --bind-to core gau train c.toml"));
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 2), HasSubstr("OMPI_MCA_mpi_yield_when_idle=1"));
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 2), HasSubstr("--oversubscribe --bind-to none gau"));
  EXPECT_THAT(line(launch::MpiKind::kMpich, 8), HasSubstr("mpirun -n 4 -bind-to core:2 "));
  EXPECT_THAT(line(launch::MpiKind::kMpich, 8), Not(HasSubstr("OMPI")));

  request.mpirun_arguments = launch::split_words("--bind-to  socket -x 'A=b c'");
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("mpirun -n 4 --bind-to socket -x 'A=b c' gau"));

  request.mpirun_arguments.clear();
  request.ranks = 0;
  request.hostfile = directory_.write("hosts", "a slots=2  # first\n\nb:2\n");
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("mpirun -n 4 --hostfile"));
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("PE=4")) << "two ranks a host";
  EXPECT_THAT(line(launch::MpiKind::kOpenMpi, 8), HasSubstr("-x GAU_OPTIM_LR"));
  EXPECT_THROW(launch::read_hostfile(directory_.write("none", "# nobody\n")), Error);
  EXPECT_THROW(launch::read_hostfile(directory_.write("bad", "a slots=x\n")), Error);
}

TEST_F(Launch, RestartGoesOnFromACheckpointOrAgainFromTheStart) {
  const std::string config = directory_.write("c.toml", "");
  const std::string set = "train.output=" + directory_.file("run");
  const std::vector<std::string> program{"gau",         "train", config,          "--set", set,
                                         "--overwrite", "--set", "optim.steps=9", "--json"};
  const std::vector<std::string> with_resume{"gau",   "train",         config,   "--set",   set,
                                             "--set", "optim.steps=9", "--json", "--resume"};
  EXPECT_EQ(launch::restart_program(program), with_resume);
  EXPECT_EQ(launch::restart_program(with_resume), with_resume);

  std::vector<std::string> from{"gau", "train", "--init-from", "other", config, "--set=" + set};
  const std::vector<std::string> again{"gau", "train", config, "--set=" + set, "--init-from", "other", "--overwrite"};
  EXPECT_EQ(launch::restart_program(from), again) << "nothing was saved yet";
  std::filesystem::create_directories(directory_.file("run/checkpoints/step-10"));
  const std::vector<std::string> resumed{"gau", "train", config, "--set=" + set, "--resume"};
  EXPECT_EQ(launch::restart_program(from), resumed);

  const std::vector<std::string> evaluation{"gau", "eval", "run"};
  EXPECT_EQ(launch::restart_program(evaluation), evaluation);
}

TEST_F(Launch, JobThatHangsAfterARankGaveUpIsKilled) {
  const ProgramResult result = run_as(rank() + "echo 'gau: rank 1 (b): broken' >&2; sleep 1000", "--grace 0.5");
  EXPECT_EQ(result.code, 76);
  EXPECT_THAT(result.err, HasSubstr("gau: rank 1 (b): broken\n"));
  EXPECT_THAT(result.err, HasSubstr("did not end 0.5 s after a rank had"));
  EXPECT_TRUE(nothing_left());
}

TEST_F(Launch, WarningOfARankIsNoEnd) {
  const ProgramResult result = run_as("echo 'gau: rank 1 (b): warning: strange' >&2; sleep 0.5; exit 0", "--grace 0.1");
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(Launch, StoppedLauncherIsKilled) {
  const ProgramResult result = run_as("kill -STOP $$", "--grace 0.3");
  EXPECT_EQ(result.code, 76);
  EXPECT_THAT(result.err, HasSubstr("has been stopped"));
  EXPECT_TRUE(nothing_left());
}

TEST_F(Launch, OrphansOfAJobThatEndedAreKilled) {
  const ProgramResult result = run_as(rank() + "exit 0", "");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(nothing_left());
}

TEST_F(Launch, LostHostIsALostPeer) {
  EXPECT_EQ(run_as("echo 'ORTE has lost communication with a remote daemon.' >&2; exit 205", "").code, 76);
  EXPECT_EQ(run_as("exit 1", "").code, 1);
}

// As hydra does it: the report in standard output, all exit codes or'ed.
TEST_F(Launch, EndsOfRanksOfMpichDecide) {
  const auto run_mpich = [&](const std::string& end) {
    const std::string mpirun = directory_.write("mpirun", R"(#!/bin/sh
if [ "$1" = --version ]; then echo 'HYDRA build details:'; exit 0; fi
echo '{"one": 1}'
echo "gau-launch: rank 2 (b) ended with 137" >&2
echo "gau-launch: rank 0 (a) ended with 76" >&2
echo "gau-launch: rank 1 (a) ended with 70" >&2
echo '==================================================================================='
echo '=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES'
echo 'YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)'
echo '{"two": 2}'
)" + end + "\n");
    chmod(mpirun.c_str(), 0700);
    return run("-n 3 --mpirun '" + mpirun + "' -- x");
  };
  for (const char* end : {"exit 79", "sleep 1000"}) {
    const ProgramResult result = run_mpich(end);
    EXPECT_EQ(result.code, 70) << "the one that is neither 76 nor a signal";
    EXPECT_EQ(result.out, "{\"one\": 1}\n{\"two\": 2}\n");
    EXPECT_THAT(result.err, HasSubstr("BAD TERMINATION"));
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Launch, RankOfMpichIsNamed) {
  const ProgramResult killed = Process("env PMI_RANK=3 " + launch("-- sh -c 'kill -9 $$'")).wait();
  EXPECT_EQ(killed.code, 137);
  EXPECT_THAT(killed.err, testing::ContainsRegex("gau-launch: rank 3 \\(.*\\) ended with 137"));
  EXPECT_EQ(Process("env PMI_RANK=3 " + launch("-- true")).wait().err, "");
}

TEST_F(Launch, SilentPeerIs76WhateverMpirunSays) {
  EXPECT_EQ(run_as("echo 'gau: rank 0 (a): gave up waiting for rank 1 (b) at step 4' >&2; exit 9", "").code, 76);
  EXPECT_EQ(run_as("exit 9", "").code, 9);
}

TEST_F(Launch, RequestToStopBecomesUsr1) {
  const std::string body = "trap 'exit 75' USR1; trap 'echo saved' USR2; echo ready; while :; do sleep 0.05; done";
  Process process(launch("-n 2 --mpirun '" + script("mpirun", body) + "' -- x"));
  ASSERT_TRUE(process.wait_until([&] { return process.out() == "ready\n"; }));
  process.send(SIGUSR2);
  ASSERT_TRUE(process.wait_until([&] { return process.out() == "ready\nsaved\n"; }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
}

TEST_F(Launch, DeafJobIsKilledAfterPatienceOrASecondRequest) {
  const std::string start =
      "-n 2 --mpirun '" + script("mpirun", "trap '' USR1; echo ready; while :; do sleep 0.05; done") + "' ";
  Process patient(launch(start + "--patience 0.5 -- x"));
  ASSERT_TRUE(patient.wait_until([&] { return patient.out() == "ready\n"; }));
  patient.send(SIGTERM);
  EXPECT_EQ(patient.wait().code, 137);

  Process impatient(launch(start + "-- x"));
  ASSERT_TRUE(impatient.wait_until([&] { return impatient.out() == "ready\n"; }));
  impatient.send(SIGINT);
  ASSERT_TRUE(impatient.wait_until([&] { return impatient.err().find("told to stop") != std::string::npos; }));
  impatient.send(SIGINT);
  EXPECT_EQ(impatient.wait().code, 130);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Launch, StartsAgainAfterALostPeerAlone) {
  const std::string count = directory_.file("count");
  const auto starts = [&](int code, const std::string& more) {
    std::filesystem::remove(count);
    const ProgramResult result =
        run("--restarts 1 " + more + " -- sh -c 'echo x >>" + count + "; exit " + std::to_string(code) + "'");
    EXPECT_EQ(result.code, code);
    return read_text(count).size() / 2;
  };
  EXPECT_EQ(starts(76, ""), 2U);
  EXPECT_EQ(starts(137, ""), 2U);
  for (const int code : {0, 64, 65, 70, 74, 75, 78}) EXPECT_EQ(starts(code, ""), 1U) << code;
  EXPECT_EQ(starts(75, "--requeue"), 2U);
}

}  // namespace
}  // namespace gau
