// Training that is killed, signalled, or whose disk fails while it saves: nothing that was saved is lost, and what is resumed
// ends in the state of a run that was never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/cli/process.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class TrainFaults : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_gau("prepare '" GAU_SOURCE_DIR "/tests/data/sample.txt' --valid 0.1 --test 0.1 -o " + file("corpus.h5")).code,
              0);
    directory_.write("config.toml", R"(
[model]
layers = 2
hidden = 32
intermediate = 48
key_size = 16
[data]
length = 32
batch = 8
[train]
eval_every = 1000000
save_every = 1000000
shards = 2
log_every = 1
threads = 1
)");
    fs::create_directory(file("faults"));
  }

  std::string file(const std::string& name) const { return directory_.file(name); }
  std::string checkpoints(const std::string& run) const { return file(run) + "/checkpoints"; }

  /// The command of a run in a directory of that name; `settings` as for --set, `flags` as they are.
  std::string command(const std::string& run, const std::vector<std::string>& settings, const std::string& flags = "") const {
    std::string line = "'" GAU_PROGRAM "' train " + file("config.toml") + " --set data.corpus=" + file("corpus.h5") +
                       " --set train.output=" + file(run) + " " + flags;
    for (const std::string& setting : settings) line += " --set " + setting;
    return line;
  }
  /// The same under the shim of faults; set_fault() and clear_fault() steer it.
  std::string faulty(const std::string& run, const std::vector<std::string>& settings, const std::string& flags = "") const {
    return "env LD_PRELOAD='" GAU_FAULT_SHIM "' GAU_FAULT_DIR=" + file("faults") + " " + command(run, settings, flags);
  }
  void set_fault(const std::string& name) const { directory_.write("faults/" + name, ""); }
  void clear_fault(const std::string& name) const { fs::remove(file("faults/" + name)); }
  bool held() const { return fs::exists(file("faults/held")); }

  ProgramResult train(const std::string& run, const std::vector<std::string>& settings, const std::string& flags = "") const {
    Process process(command(run, settings, flags));
    return process.wait();
  }
  nlohmann::json info(const std::string& path) const {
    const ProgramResult result = run_gau("info --json " + path);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  /// Digest of the state that an uninterrupted run has after so many of all its steps.
  std::string digest_after(std::int64_t step, std::vector<std::string> settings) {
    const std::string run = "straight" + std::to_string(++straight_runs_);
    settings.push_back("train.save_every=" + std::to_string(step));
    settings.push_back("train.keep=1000000");
    Process process(command(run, settings));
    const std::string checkpoint = checkpoints(run) + "/step-" + std::to_string(step);
    const bool there = process.wait_until([&] { return fs::exists(checkpoint); });
    EXPECT_TRUE(there) << process.err();
    return there ? info(checkpoint)["digest"].get<std::string>() : "";
  }
  std::int64_t metric_lines(const std::string& run) const {
    const std::string text = read_text(file(run) + "/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  /// "step-N", or "" before the first checkpoint.
  std::string latest(const std::string& run) const {
    std::error_code error;
    return fs::read_symlink(checkpoints(run) + "/latest", error).string();
  }
  std::vector<std::string> leftovers(const std::string& run) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints(run))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".")) names.push_back(name);
    }
    return names;
  }
  void kill_and_resume(int kills) const;

  TestDirectory directory_;
  int straight_runs_ = 0;
};

const std::vector<std::string> kEndless = {"optim.steps=1000000", "optim.warmup=100"};

std::vector<std::string> endless(const std::string& more) {
  std::vector<std::string> settings = kEndless;
  settings.push_back(more);
  return settings;
}

/// Kills the run at random moments of a save, resumes it each time, lets it end and compares with a run that was left alone.
void TrainFaults::kill_and_resume(int kills) const {
  std::mt19937 random(7);
  const std::vector<std::string> settings = {"optim.steps=" + std::to_string(20 * kills), "train.eval_every=7",
                                             "train.save_every=1"};
  int resumed = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string before = latest("killed");
    Process process(command("killed", settings, "--resume"));
    // One save passes and is timed; the kill comes anywhere in the next two, which take nearly all of the time: in writing,
    // publishing, linking or pruning.
    ASSERT_TRUE(process.wait_until([&] { return process.err().find("tokens/s") != std::string::npos; })) << process.err();
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(process.wait_until([&] { return latest("killed") != before; })) << process.err();
    const std::chrono::duration<double> save = std::chrono::steady_clock::now() - begin;
    std::this_thread::sleep_for(save * std::uniform_real_distribution<double>(0, 2)(random));
    process.send(SIGKILL);
    const ProgramResult result = process.wait();
    ASSERT_EQ(result.code, 128 + SIGKILL) << "run " << i << " ended by itself: " << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("rejected")));
    resumed += result.err.find("resuming ") != std::string::npos ? 1 : 0;
  }
  const ProgramResult last = train("killed", {settings[0], settings[1]}, "--resume");
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, Not(HasSubstr("rejected")));
  EXPECT_EQ(resumed, kills - 1);  // all but the first
  ASSERT_EQ(train("straight", {settings[0], settings[1]}).code, 0);
  EXPECT_EQ(info(file("killed"))["digest"], info(file("straight"))["digest"]);
  EXPECT_EQ(info(file("killed"))["best"], info(file("straight"))["best"]);
  EXPECT_TRUE(leftovers("killed").empty());
}

TEST_F(TrainFaults, KilledInASaveTheRunResumesToTheSameState) { kill_and_resume(5); }

class TrainFaultsSlow : public TrainFaults {};

/// Tests that need the shim.
class TrainFaultyDisk : public TrainFaults {
 protected:
  void SetUp() override {
    if (std::string(GAU_FAULT_SHIM).empty()) GTEST_SKIP() << "a sanitized program takes no shim";
    TrainFaults::SetUp();
  }
};

TEST_F(TrainFaultsSlow, FiftyKillsInASave) { kill_and_resume(50); }

TEST_F(TrainFaultyDisk, TrainingGoesOnWhileASaveIsWritten) {
  set_fault("hold");
  Process process(faulty("run", {"optim.steps=8", "train.save_every=5"}));
  ASSERT_TRUE(process.wait_until([&] { return held() && metric_lines("run") == 8; })) << process.err();
  EXPECT_FALSE(fs::exists(checkpoints("run") + "/step-5"));
  clear_fault("hold");
  EXPECT_EQ(process.wait().code, 0);
  EXPECT_TRUE(fs::exists(checkpoints("run") + "/step-5"));
  ASSERT_EQ(train("straight", {"optim.steps=8"}).code, 0);
  EXPECT_EQ(info(file("run"))["digest"], info(file("straight"))["digest"]);
}

TEST_F(TrainFaultyDisk, ASaveThatIsDueWaitsForTheOneInFlight) {
  set_fault("hold");
  Process process(faulty("run", {"optim.steps=8", "train.save_every=3"}));
  ASSERT_TRUE(process.wait_until([&] { return process.err().find("waiting for the save of step 3") != std::string::npos; }))
      << process.err();
  EXPECT_EQ(metric_lines("run"), 6);
  clear_fault("hold");
  EXPECT_EQ(process.wait().code, 0);
  for (const char* step : {"/step-6", "/step-8"}) EXPECT_TRUE(fs::exists(checkpoints("run") + step));
}

TEST_F(TrainFaultyDisk, AnErrorLeavesAfterTheSaveInFlight) {
  set_fault("hold");
  // Step 1 throws the parameters so far off that no later step has a finite gradient.
  Process process(faulty("run", {"optim.steps=40", "optim.lr=1e18", "optim.clip=0", "optim.warmup=0", "train.save_every=4"}));
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(file("run") + "/replay.json"); })) << process.err();
  ASSERT_TRUE(process.wait_until([&] { return held(); })) << process.err();
  clear_fault("hold");
  const ProgramResult result = process.wait();
  EXPECT_EQ(result.code, 70) << result.err;
  EXPECT_EQ(latest("run"), "step-4");
  EXPECT_EQ(info(file("run"))["step"], 4);
  EXPECT_TRUE(leftovers("run").empty());
}

TEST_F(TrainFaultyDisk, AFailedSaveCostsACheckpointAndNotTheRun) {
  for (const auto& [fault, reason] :
       {std::pair{"EIO", "Input/output error"}, {"ENOSPC", "No space left on device"}, {"EROFS", "Read-only file system"}}) {
    SCOPED_TRACE(fault);
    ASSERT_EQ(train("run", {"optim.steps=4", "optim.warmup=1"}, "--overwrite").code, 0);
    const std::string before = info(file("run"))["digest"];
    set_fault(fault);
    Process process(faulty("run", {"optim.steps=1000000", "optim.warmup=1", "train.save_every=3"}, "--resume"));
    ASSERT_TRUE(process.wait_until([&] {
      return process.err().find("checkpoint of step 9 could not be saved") != std::string::npos;
    })) << process.err();
    EXPECT_THAT(process.err(), HasSubstr(reason));
    EXPECT_EQ(info(file("run"))["digest"], before);
    clear_fault(fault);
    ASSERT_TRUE(process.wait_until([&] { return latest("run") != "step-4"; })) << process.err();
    set_fault(fault);
    process.send(SIGUSR1);
    const ProgramResult result = process.wait();
    EXPECT_EQ(result.code, 74) << result.err;
    EXPECT_THAT(result.err, HasSubstr(reason));
    EXPECT_GT(info(file("run"))["step"], 4);  // read and verified
    EXPECT_TRUE(leftovers("run").empty());
    clear_fault(fault);
  }
}

TEST_F(TrainFaults, AFileInThePlaceOfTheDirectoryIsSaid) {
  Process process(command("run", endless("train.save_every=5")));
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(checkpoints("run") + "/latest"); })) << process.err();
  fs::rename(checkpoints("run"), file("moved"));
  directory_.write("run/checkpoints", "");
  ASSERT_TRUE(process.wait_until([&] { return process.err().find("Not a directory") != std::string::npos; })) << process.err();
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().code, 74);
  fs::remove(checkpoints("run"));
  fs::rename(file("moved"), checkpoints("run"));
  EXPECT_GE(info(file("run"))["step"], 5);
}

TEST_F(TrainFaults, AFileSizeLimitEndsItWithAnInputOutputError) {
  ASSERT_EQ(train("run", {"optim.steps=4", "optim.warmup=1"}).code, 0);
  const std::string before = info(file("run"))["digest"];
  const ProgramResult result =
      run_gau("train " + file("config.toml") + " --resume --set data.corpus=" + file("corpus.h5") +
                  " --set train.output=" + file("run") + " --set optim.steps=9 --set optim.warmup=1 --set train.save_every=2",
              "ulimit -f 20;");
  EXPECT_EQ(result.code, 74) << result.err;
  EXPECT_THAT(result.err, HasSubstr("File too large"));
  EXPECT_EQ(metric_lines("run"), 9);
  EXPECT_EQ(info(file("run"))["digest"], before);
}

TEST_F(TrainFaults, OnAFullDiskTheCheckpointBeforeStays) {
  const std::string mount = "mount -t tmpfs -o size=1m tmpfs " + file("disk");
  fs::create_directory(file("disk"));
  if (std::system(("unshare -rm sh -c '" + mount + "' 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no mounts of our own here";
  // All of it inside one namespace, since the disk goes with it.
  const std::string script = directory_.write(
      "script.sh", "set -x; " + mount + " || exit 99\n" + command("disk/run", {"optim.steps=4", "optim.warmup=1"}) + "\n" +
                       "dd if=/dev/zero of=" + file("disk/filler") + " bs=1k 2>/dev/null\n" +
                       command("disk/run", {"optim.steps=40", "optim.warmup=1", "train.save_every=2"}, "--resume") +
                       "; echo code $?\n rm " + file("disk/filler") + "\n'" GAU_PROGRAM "' info --json " + file("disk/run"));
  Process process("unshare -rm sh " + script);
  const ProgramResult result = process.wait();
  EXPECT_THAT(result.out, HasSubstr("code 74")) << result.err;
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  EXPECT_THAT(result.out, HasSubstr("\"step\":4,"));
}

TEST_F(TrainFaults, StoppedBySignalTheRunResumesToTheSameState) {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    const std::string run = "run" + std::to_string(signal);
    Process process(command(run, kEndless));
    ASSERT_TRUE(process.wait_until([&] { return metric_lines(run) >= 3; })) << process.err();
    process.send(signal);
    const ProgramResult result = process.wait();
    EXPECT_EQ(result.code, 75) << result.err;
    EXPECT_THAT(result.err, HasSubstr("continue with --resume"));
    const nlohmann::json stopped = info(file(run));
    EXPECT_EQ(stopped["step"], metric_lines(run));
    EXPECT_EQ(stopped["digest"], digest_after(stopped["step"], kEndless));
  }
}

TEST_F(TrainFaults, SigUsr2SavesAndGoesOn) {
  Process process(command("run", kEndless));
  ASSERT_TRUE(process.wait_until([&] { return metric_lines("run") >= 1; })) << process.err();
  process.send(SIGUSR2);
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(checkpoints("run") + "/latest"); })) << process.err();
  const std::int64_t lines = metric_lines("run");
  EXPECT_TRUE(process.wait_until([&] { return metric_lines("run") > lines; }));
  process.send(SIGUSR1);
  EXPECT_EQ(process.wait().code, 75);
}

TEST_F(TrainFaults, SecondRunIsRefusedAndTheFirstGoesOn) {
  Process first(command("run", endless("train.save_every=1")));
  ASSERT_TRUE(first.wait_until([&] { return latest("run") != ""; })) << first.err();
  const std::string holder = read_text(file("run") + "/run.lock");
  for (const char* flags : {"", "--overwrite"}) {
    const ProgramResult second = train("run", kEndless, flags);
    EXPECT_EQ(second.code, 64) << second.err;
    EXPECT_THAT(second.err, HasSubstr(holder.substr(0, holder.size() - 1) + " holds the directory"));
  }
  EXPECT_EQ(train("elsewhere", {"optim.steps=2", "optim.warmup=1"}).code, 0);
  const std::int64_t lines = metric_lines("run");
  EXPECT_TRUE(first.wait_until([&] { return metric_lines("run") > lines; })) << first.err();
  first.send(SIGKILL);
  first.wait();
  const ProgramResult resumed = train("run", {"optim.steps=1"}, "--resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, Not(HasSubstr("waiting")));
  EXPECT_EQ(run_gau("verify " + file("run")).code, 0);
}

TEST_F(TrainFaults, JobThatIsStartedAgainTooEarlyWaitsForItsPredecessor) {
  Process first(command("run", kEndless));
  ASSERT_TRUE(first.wait_until([&] { return metric_lines("run") >= 1; })) << first.err();
  Process second(command("run", {"optim.steps=1"}, "--resume"));
  ASSERT_TRUE(second.wait_until([&] { return second.err().find("waiting for process") != std::string::npos; })) << second.err();
  first.send(SIGUSR1);
  EXPECT_EQ(first.wait().code, 75);
  EXPECT_EQ(second.wait().code, 0) << second.err();
}

TEST_F(TrainFaultyDisk, WithoutLocksARunOnlyWarns) {
  set_fault("ENOLCK");
  Process process(faulty("run", {"optim.steps=2", "optim.warmup=1"}));
  const ProgramResult result = process.wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("its file system has no locks (No locks available)"));
}

TEST_F(TrainFaultyDisk, StoppedInASaveNoStepIsLost) {
  set_fault("hold");
  Process process(faulty("run", endless("train.save_every=5")));
  ASSERT_TRUE(process.wait_until([&] { return held(); })) << process.err();
  process.send(SIGUSR1);
  const std::int64_t lines = metric_lines("run");
  clear_fault("hold");
  const ProgramResult result = process.wait();
  EXPECT_EQ(result.code, 75) << result.err;
  const nlohmann::json stopped = info(file("run"));
  EXPECT_GE(stopped["step"], lines);
  EXPECT_EQ(stopped["step"], metric_lines("run"));
  EXPECT_EQ(stopped["digest"], digest_after(stopped["step"], kEndless));
  EXPECT_TRUE(leftovers("run").empty());
}

TEST_F(TrainFaultyDisk, ASecondSigtermLeavesAtOnceAndLosesNoCheckpoint) {
  set_fault("hold");
  Process process(faulty("run", endless("train.save_every=5")));
  ASSERT_TRUE(process.wait_until([&] { return held(); })) << process.err();
  process.send(SIGUSR1);  // does not count
  process.send(SIGTERM);
  // The first one ends the loop, and the save in flight is waited for; only the second ends that.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(process.running());
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().code, 128 + SIGTERM);
  EXPECT_FALSE(leftovers("run").empty());
  clear_fault("hold");
  EXPECT_EQ(train("run", {"optim.steps=6", "optim.warmup=2"}, "--resume").code, 0);
  EXPECT_TRUE(leftovers("run").empty());
}

}  // namespace
}  // namespace gau
