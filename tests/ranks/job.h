// The program on several ranks, as a user starts it with mpirun.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace gau {

struct JobResult {
  int code = -1;
  std::string out, err;
  double seconds = 0;
  int left = 0;  ///< processes of the job that are still there

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

class Job : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared() = new TestDirectory;
    run_gau("prepare '" GAU_SOURCE_DIR "/tests/data/sample.txt' -o '" + shared()->file("corpus.h5") +
            "' --valid 0.1 --test 0.1 --quiet");
    shared()->write("config.toml",
                    "[model]\nlayers = 2\nhidden = 32\nintermediate = 48\nkey_size = 16\n"
                    "[data]\ncorpus = \"" +
                        shared()->file("corpus.h5") +
                        "\"\nlength = 32\nbatch = 8\n"
                        "[optim]\nsteps = 12\n[train]\nthreads = 1\ntimeout = 20\neval_every = 6\n");
  }
  static void TearDownTestSuite() {
    delete shared();
    shared() = nullptr;
  }
  void SetUp() override {
    if (std::system("'" GAU_MPIRUN "' --version >/dev/null 2>&1") != 0) GTEST_SKIP() << GAU_MPIRUN " is not here";
  }

  static std::string config() { return "'" + shared()->file("config.toml") + "'"; }
  static std::string corpus() { return "'" + shared()->file("corpus.h5") + "'"; }
  std::string output(const std::string& name) const { return scratch_.file(name); }

  /// MPICH's mpirun says which process was killed, not which rank, and has exit codes of its own: jobs run under gau-launch.
  static bool is_mpich() {
    static const bool answer = std::system("'" GAU_MPIRUN "' --version 2>/dev/null | grep -q HYDRA") == 0;
    return answer;
  }

  /// What mpirun needs as root, and on fewer processors than ranks.
  static std::string launcher(int ranks, const std::string& fault = "") {
    std::string command =
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
        "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1 ";
    if (!fault.empty()) command += "GAU_TEST_FAULT='" + fault + "' ";
    if (is_mpich() && ranks > 1) {
      command += "'" GAU_LAUNCH "' -n " + std::to_string(ranks) + " --threads 1 --grace 2 --mpirun '" GAU_MPIRUN "' -- ";
    } else {
      command += "'" GAU_MPIRUN "' -n " + std::to_string(ranks) + " ";
    }
    if (!fault.empty()) command += "env LD_PRELOAD='" GAU_MPI_SHIM "' ";
    return command;
  }

  /// `gau ARGUMENTS` on `ranks` ranks, at most a minute.
  JobResult run(int ranks, const std::string& arguments, const std::string& fault = "") const {
    return run_command(launcher(ranks, fault) + "'" GAU_PROGRAM "' " + arguments);
  }

  JobResult run_command(const std::string& command) const {
    const auto begin = std::chrono::steady_clock::now();
    Process process("timeout -k 1 60 " + command);
    const ProgramResult program = process.wait();
    JobResult result{program.code, program.out, program.err};
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.left = processes_left();
    return result;
  }

  std::string train_arguments(const std::string& name, const std::string& more = "") const {
    return "train " + config() + " --quiet --json --set train.output='" + output(name) + "' " + more;
  }
  JobResult train(int ranks, const std::string& name, const std::string& more = "", const std::string& fault = "") const {
    return run(ranks, train_arguments(name, more), fault);
  }

  /// Name and bytes of every file of a run's newest checkpoint.
  std::map<std::string, std::string> checkpoint(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(output(name) + "/checkpoints/latest"))
      files[entry.path().filename().string()] = read_text(entry.path());
    return files;
  }

  /// Whose command line names this test's directory. The launcher's children are given a moment to go.
  int processes_left() const {
    int left = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
      left = 0;
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        if (read_text(entry.path() / "cmdline").find(scratch_.path().string()) != std::string::npos) ++left;
      }
      if (left == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return left;
  }

 private:
  static TestDirectory*& shared() {
    static TestDirectory* directory = nullptr;
    return directory;
  }

  TestDirectory scratch_;
};

}  // namespace gau
