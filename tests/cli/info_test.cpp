// gau info: parameter counts of the published models, corpora, runs and checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tiny_run.h"

namespace gau {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string published_config(int layers) {
  return "[model]\nlayers = " + std::to_string(layers) +
         "\nhidden = 768\nintermediate = 1536\nkey_size = 128\nvocab_size = 12000\n";
}

TEST(Info, CountsThePublishedModels) {
  const TestDirectory directory;
  const std::string base = directory.write("base.toml", published_config(24));
  const std::string small = directory.write("small.toml", published_config(6));
  EXPECT_THAT(run_gau("info '" + base + "'").out, HasSubstr("96.5 M"));
  EXPECT_THAT(run_gau("info '" + small + "'").out, HasSubstr("31.0 M"));
  const auto result = run_gau("info --json '" + base + "'");
  EXPECT_EQ(result.code, 0);
  const json info = json::parse(result.out);
  EXPECT_EQ(info["kind"], "config");
  EXPECT_EQ(info["parameters"], 96517632);
  EXPECT_EQ(info["config"]["model"]["layers"], 24);
}

TEST(Info, ABadConfigurationNamesFileAndLine) {
  const TestDirectory directory;
  const std::string path = directory.write("c.toml", "[model]\nlayrs = 2\n");
  const auto result = run_gau("info '" + path + "'");
  EXPECT_EQ(result.code, 65);
  EXPECT_THAT(result.err, HasSubstr(path + ":2:"));
  EXPECT_THAT(result.err, HasSubstr("'layers'"));
}

TEST(Info, TheEnvironmentIsReadWhateverTheLocale) {
  const TestDirectory directory;
  const std::string path = directory.write("c.toml", "[model]\nvocab_size = 100\n");
  const auto result = run_gau("info --json '" + path + "'", "LC_ALL=de_DE.UTF-8 GAU_OPTIM_LR=2.5e-3");
  EXPECT_EQ(json::parse(result.out)["config"]["optim"]["lr"], 2.5e-3);
  EXPECT_EQ(run_gau("info '" + path + "'", "GAU_OPTIM_LR=2,5e-3").code, 64);
}

TEST(Info, OtherThingsAreRefused) {
  const TestDirectory directory;
  EXPECT_EQ(run_gau("info '" + directory.path().string() + "'").code, 65);
  EXPECT_EQ(run_gau("info '" + directory.write("cut.h5", "\x89HDF\r\n") + "'").code, 65);
  EXPECT_EQ(run_gau("info '" + directory.write("c.toml", std::string("\0\1\2", 3)) + "'").code, 65);
}

TEST_F(TinyRun, CorpusRunCheckpointAndModelAreTold) {
  EXPECT_EQ(info("corpus.h5")["kind"], "corpus");
  EXPECT_EQ(info("corpus.h5")["documents"], 60);
  const json run = info("run"), checkpoint = info("run/checkpoints/latest");
  EXPECT_EQ(run["kind"], "run");
  EXPECT_EQ(checkpoint["kind"], "checkpoint");
  EXPECT_EQ(checkpoint["step"], 6);
  EXPECT_EQ(run["digest"], checkpoint["digest"]);
  const json model = info("run/checkpoints/latest/model.h5");
  EXPECT_EQ(model["kind"], "model");
  EXPECT_EQ(model["model"]["L_train"], 16);
  EXPECT_EQ(model["parameters"], checkpoint["parameters"]);
  EXPECT_EQ(info("run/config.toml")["parameters"], checkpoint["parameters"]);
}

// `gau eval RUN` needs no --data: the run says what it was trained on.
TEST_F(TinyRun, EvaluationAndInspectionReadTheCorpusOfTheRun) {
  for (const char* place : {"run", "run/checkpoints/latest/model.h5"}) {
    const auto result = run_gau("eval --json --lengths 16 '" + directory_.file(place) + "'");
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out)["corpus"]["path"], corpus_);
  }
  const auto seen =
      run_gau("inspect --quiet --lengths 16 '" + directory_.file("run") + "' --out '" + directory_.file("seen") + "'");
  EXPECT_EQ(seen.code, 0) << seen.err;
  std::filesystem::copy(directory_.path() / "run/checkpoints/latest/model.h5", directory_.path() / "alone.h5");
  const auto alone = run_gau("eval --lengths 16 '" + directory_.file("alone.h5") + "'");
  EXPECT_EQ(alone.code, 64);
  EXPECT_THAT(alone.err, HasSubstr("give --data"));
}

TEST_F(TinyRun, AnInterruptedRunEndsWithTheSameBytes) {
  ASSERT_EQ(train("other").code, 0);
  std::filesystem::remove_all(directory_.path() / "other/checkpoints/step-6");
  ASSERT_EQ(train("other", "--resume").code, 0);
  EXPECT_EQ(info("run")["digest"], info("other")["digest"]);
  for (const char* name : {"manifest.json", "model.h5", "optimizer-0.h5"})
    EXPECT_EQ(read_text(directory_.path() / "run/checkpoints/step-6" / name),
              read_text(directory_.path() / "other/checkpoints/step-6" / name))
        << name;
}

}  // namespace
}  // namespace gau
