// A pipe, a directory or a file of gigabytes in the place of each small file that the programs read: refused at once, with one
// line and the right code. Under `timeout`, so that waiting for the pipe's other end ends, with another code: by SIGKILL, since
// a run that waits there heeds no other.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <functional>

#include "tests/cli/process.h"
#include "tests/cli/tiny_run.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const kPrompt = "timeout -s KILL 20";

class WrongFiles : public TinyRun {
 protected:
  std::string quoted(const std::string& name) const { return "'" + directory_.file(name) + "'"; }
  ProgramResult gau(const std::string& arguments) const { return run_gau(arguments, kPrompt); }
  ProgramResult resume(const std::string& more = "") const {
    return gau("train --quiet " + quoted("c.toml") + " --resume --set data.corpus=" + quoted("corpus.h5") +
               " --set train.output=" + quoted("run") + " " + more);
  }

  /// Puts each kind of wrong file at `name` and expects `action` to end with `code` and to tell why.
  void expect_refused(const std::string& name, int code, const std::function<ProgramResult()>& action) const {
    const std::string path = directory_.file(name), kept = path + ".kept";
    if (fs::exists(path)) fs::rename(path, kept);
    const auto expect = [&](const char* why) {
      const ProgramResult result = action();
      EXPECT_EQ(result.code, code) << name << ": " << why << ": " << result.err;
      EXPECT_THAT(result.err + result.out, HasSubstr(why)) << name;
      fs::remove(path);
    };
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    expect("no regular file");
    fs::create_directory(path);
    expect("no regular file");
    directory_.write(name, "");
    fs::resize_file(path, std::uintmax_t{1} << 40);
    expect("has more than");
    if (fs::exists(kept)) fs::rename(kept, path);
  }
};

TEST_F(WrongFiles, ManifestOfTheOnlyCheckpoint) {
  for (const char* step : {"step-2", "step-3", "step-4"}) fs::remove_all(directory_.file("run/checkpoints/") + step);
  expect_refused("run/checkpoints/step-6/manifest.json", 65, [&] { return resume(); });
  expect_refused("run/checkpoints/step-6/manifest.json", 65, [&] { return gau("info " + quoted("run/checkpoints/step-6")); });
}

TEST_F(WrongFiles, PartsOfTheNewestCheckpointCostThatCheckpoint) {
  const std::string checkpoint = "run/checkpoints/step-6/";
  for (const char* part : {"manifest.json", "model.h5", "optimizer-0.h5"}) {
    const std::string path = directory_.file(checkpoint + part);
    fs::rename(path, path + ".kept");
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const ProgramResult result = resume();
    EXPECT_EQ(result.code, 0) << part << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("step-6 is rejected"));
  }
}

TEST_F(WrongFiles, ConfigurationsAndMetricsOfARun) {
  const std::string metrics = directory_.file("run/metrics.jsonl");
  fs::remove(metrics);
  ASSERT_EQ(mkfifo(metrics.c_str(), 0600), 0);
  const ProgramResult verified = gau("verify " + quoted("run"));
  EXPECT_EQ(verified.code, 65);
  EXPECT_THAT(verified.out, HasSubstr("no regular file but a pipe"));
  const ProgramResult resumed = resume("--set optim.steps=8");
  EXPECT_EQ(resumed.code, 65) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("no regular file but a pipe"));
  const std::string config = directory_.file("run/config.toml");
  fs::remove(config);
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  EXPECT_EQ(gau("verify " + quoted("run")).code, 65);
  EXPECT_EQ(gau("inspect " + quoted("run") + " --out " + quoted("out")).code, 64);
}

TEST_F(WrongFiles, FilesThatAreNamed) {
  expect_refused("vocab.txt", 65, [&] {
    return gau("prepare --quiet --check --vocab " + quoted("vocab.txt") + " " + quoted("text.txt") + " -o " + quoted("x.h5"));
  });
  expect_refused("hosts", 65, [&] {
    const std::string launch = "timeout -s KILL 20 '" GAU_LAUNCH "' --dry-run --hostfile " + quoted("hosts") + " -- true";
    const int status = std::system((launch + " >" + quoted("said") + " 2>&1").c_str());
    return ProgramResult{WEXITSTATUS(status), "", read_text(directory_.file("said"))};
  });
  ASSERT_EQ(run_gau("export --quiet " + quoted("run") + " -o " + quoted("hf")).code, 0);
  expect_refused("hf/config.json", 65, [&] { return gau("import --quiet " + quoted("hf") + " -o " + quoted("y.h5")); });
}

TEST_F(WrongFiles, AConfigurationMayComeThroughAPipe) {
  const std::string script =
      directory_.write("script.sh", "cat " + quoted("c.toml") +
                                        " | timeout -s KILL 20 '" GAU_PROGRAM "' train --quiet /dev/stdin --set data.corpus=" +
                                        quoted("corpus.h5") + " --set train.output=" + quoted("piped"));
  const ProgramResult piped = Process("sh '" + script + "'").wait();
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(info("piped")["digest"], info("run")["digest"]);
}

}  // namespace
}  // namespace gau
