// Whole runs: reproducible to the byte, resumed as if never stopped, careful with directories, honest about failures.
#include "train/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/sampler.h"
#include "framework/digest.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "tests/train/small_corpus.h"
#include "train/checkpoint_store.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

class TrainingRun : public testing::Test {
 protected:
  void SetUp() override { log::set_quiet(true); }
  void TearDown() override { log::set_quiet(false); }

  TrainRequest request(const std::string& output, const std::vector<std::string>& settings = {}) const {
    TrainRequest result;
    result.config = small_config(corpus_, scratch_.file(output), settings);
    return result;
  }

  /// Name and bytes of every file of a run's newest checkpoint.
  std::map<std::string, std::string> checkpoint(const std::string& output) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(scratch_.file(output) + "/checkpoints/latest")) {
      files[entry.path().filename().string()] = read_bytes(entry.path().string());
    }
    return files;
  }

  std::vector<nlohmann::json> metrics(const std::string& output) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(scratch_.file(output) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  Scratch scratch_;
  std::string corpus_ = small_corpus(scratch_);
};

ExitCode code_of(const std::function<void()>& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.code();
  }
  return ExitCode::kDone;
}

TEST_F(TrainingRun, TwoRunsWithOneSeedGiveEqualBytes) {
  const int before = threads();
  set_threads(1);
  const TrainResult a = train(request("a"));
  set_threads(2);
  const TrainResult b = train(request("b"));
  set_threads(before);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(checkpoint("a"), checkpoint("b"));
  EXPECT_EQ(read_bytes(scratch_.file("a/config.toml")).size(), read_bytes(scratch_.file("b/config.toml")).size());
  EXPECT_NE(train(request("c", {"train.seed=1"})).digest, a.digest);
}

TEST_F(TrainingRun, ResumedEqualsUninterrupted) {
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{},
                                             {"optim.name=lamb", "optim.accumulate=2"},
                                             {"attention.kind=cosine", "attention.scale_warmup=8", "train.dtype=f64"}}) {
    const TrainResult straight = train(request("straight", settings));
    // The first part ends after step 5 as a killed run would: what it saved last is step 4 or 3, so steps are made again.
    TrainRequest first = request("parts", settings);
    first.config.optim.steps = 12;
    train(first);
    for (const std::int64_t step : {5, 6, 7, 8, 9, 10, 11, 12}) {
      fs::remove_all(scratch_.file("parts/checkpoints/step-" + std::to_string(step)));
    }
    TrainRequest rest = request("parts", settings);
    rest.resume = true;
    const TrainResult resumed = train(rest);
    EXPECT_EQ(resumed.digest, straight.digest);
    EXPECT_EQ(checkpoint("parts"), checkpoint("straight"));
    const auto one = metrics("straight"), two = metrics("parts");
    ASSERT_EQ(one.size(), 12U);
    ASSERT_EQ(two.size(), 12U);
    for (std::size_t i = 0; i < 12; ++i) {
      for (const char* key : {"step", "loss", "lr", "grad_norm", "masked_tokens"}) EXPECT_EQ(one[i][key], two[i][key]) << key;
    }
    fs::remove_all(scratch_.file("straight"));
    fs::remove_all(scratch_.file("parts"));
  }
}

/// Every setting in which a state could hide, resumed at every third step: inside the first epoch and the second,
/// inside the warm-up of the rate and of s.
TEST_F(TrainingRun, ResumedEqualsUninterruptedForEachOptimizerAndType) {
  const std::string text = read_bytes(GAU_SOURCE_DIR "/tests/data/sample.txt");
  std::ofstream(scratch_.file("half.txt")) << text.substr(0, text.size() * 45 / 100);
  PrepareOptions half;
  half.inputs = {scratch_.file("half.txt")};
  half.output = scratch_.file("half.h5");
  half.fractions.valid = 0.1;
  prepare(half);
  const Corpus corpus(half.output);
  const std::int64_t epoch = Sampler(corpus, Split::kTrain, 32, 0, true).windows();
  for (const std::string name : {"adamw", "lamb"}) {
    for (const std::string dtype : {"f32", "bf16"}) {
      const std::vector<std::string> settings = {"data.corpus=" + half.output,
                                                 "optim.name=" + name,
                                                 "train.dtype=" + dtype,
                                                 "optim.accumulate=2",
                                                 "optim.steps=12",
                                                 "data.batch=24",
                                                 "attention.kind=cosine",
                                                 "attention.scale_warmup=10",
                                                 "optim.warmup=8",
                                                 "train.shards=2",
                                                 "train.save_every=1"};
      SCOPED_TRACE(name + " " + dtype);
      const TrainResult straight = train(request("straight", settings));
      EXPECT_GT(12 * 48, epoch);
      EXPECT_LT(8 * 48, epoch);
      TrainResult result = train(request("parts", settings));
      for (const std::int64_t stop : {2, 5, 8, 11}) {
        for (std::int64_t step = stop + 1; step <= 12; ++step)
          fs::remove_all(scratch_.file("parts/checkpoints/step-" + std::to_string(step)));
        TrainRequest rest = request("parts", settings);
        rest.resume = true;
        result = train(rest);
      }
      EXPECT_EQ(result.digest, straight.digest);
      EXPECT_EQ(checkpoint("parts"), checkpoint("straight"));
      fs::remove_all(scratch_.file("straight"));
      fs::remove_all(scratch_.file("parts"));
    }
  }
}

TEST_F(TrainingRun, ResumingAFinishedRunChangesNothing) {
  const TrainResult first = train(request("run"));
  const auto before = checkpoint("run");
  const auto written = fs::last_write_time(scratch_.file("run/checkpoints/step-12/manifest.json"));
  TrainRequest again = request("run");
  again.resume = true;
  const TrainResult second = train(again);
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(second.step, 12);
  EXPECT_EQ(second.validation_loss, first.validation_loss);
  EXPECT_EQ(checkpoint("run"), before);
  EXPECT_EQ(fs::last_write_time(scratch_.file("run/checkpoints/step-12/manifest.json")), written);
}

TEST_F(TrainingRun, AnotherCorpusIsRefusedUnlessAllowed) {
  train(request("run"));
  PrepareOptions other;
  other.inputs = {GAU_SOURCE_DIR "/tests/data/sample.txt"};
  other.output = scratch_.file("other.h5");
  other.fractions.valid = 0.2;
  other.fractions.test = 0.1;
  prepare(other);
  fs::copy_file(corpus_, scratch_.file("moved.h5"));

  TrainRequest moved = request("run", {"optim.steps=13", "data.corpus=" + scratch_.file("moved.h5")});
  moved.resume = true;
  EXPECT_EQ(train(moved).step, 13);

  TrainRequest changed = request("run", {"optim.steps=14", "data.corpus=" + other.output});
  changed.resume = true;
  std::string message;
  EXPECT_EQ(code_of([&] { train(changed); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr(digest_text(Corpus(corpus_).digest())));
  EXPECT_THAT(message, testing::HasSubstr(digest_text(Corpus(other.output).digest())));
  EXPECT_THAT(message, testing::HasSubstr("--allow-new-data"));
  changed.allow_new_data = true;
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(changed).step, 14);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("resuming with new data"));
  EXPECT_THAT(said, testing::HasSubstr("resuming with a changed setting: optim.steps: 13 -> 14"));
}

TEST_F(TrainingRun, NewDataNeedsTheSameVocabulary) {
  train(request("run"));
  std::string text = read_bytes(GAU_SOURCE_DIR "/tests/data/sample.txt");
  std::replace(text.begin(), text.end(), 'e', '%');
  std::ofstream(scratch_.file("text.txt")) << text;
  PrepareOptions other;
  other.inputs = {scratch_.file("text.txt")};
  other.output = scratch_.file("other.h5");
  other.fractions.valid = 0.1;
  other.fractions.test = 0.1;
  prepare(other);
  ASSERT_EQ(Corpus(other.output).vocabulary().size(), Corpus(corpus_).vocabulary().size());
  TrainRequest changed = request("run", {"data.corpus=" + other.output});
  changed.resume = changed.allow_new_data = true;
  std::string message;
  EXPECT_EQ(code_of([&] { train(changed); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr("another vocabulary"));
}

TEST_F(TrainingRun, KeepBestMakesAndKeepsTheBestByValidationLoss) {
  train(request("run", {"train.keep=1", "train.keep_best=3", "train.eval_every=1", "train.save_every=100", "optim.steps=20",
                        "optim.lr=0.05"}));
  std::vector<std::pair<double, std::int64_t>> losses;
  for (const auto& line : metrics("run"))
    losses.emplace_back(line["valid_loss"].get<double>(), line["step"].get<std::int64_t>());
  std::sort(losses.begin(), losses.end());
  std::set<std::int64_t> expected{20};
  for (std::size_t i = 0; i < 3; ++i) expected.insert(losses[i].second);
  const std::vector<std::int64_t> steps = CheckpointStore(scratch_.file("run"), 1, 3).steps();
  EXPECT_EQ(std::set<std::int64_t>(steps.begin(), steps.end()), expected);
  EXPECT_EQ(fs::read_symlink(scratch_.file("run/checkpoints/best")).string(), "step-" + std::to_string(losses[0].second));
}

TEST_F(TrainingRun, SavesByTheClockChangeNoBytes) {
  const TrainResult straight = train(request("straight"));
  const TrainResult often = train(request("often", {"train.save_minutes=1e-9", "train.save_every=100"}));
  EXPECT_EQ(often.digest, straight.digest);
  EXPECT_EQ(checkpoint("often"), checkpoint("straight"));
  EXPECT_EQ(CheckpointStore(scratch_.file("often"), 20).steps().size(), 12U);
}

TEST_F(TrainingRun, LeftoversGoWhenARunStarts) {
  fs::create_directories(scratch_.file("run/checkpoints/.step-7.tmp"));
  TrainRequest fresh = request("run", {"optim.steps=1", "train.save_every=100"});
  fresh.resume = true;
  train(fresh);
  EXPECT_FALSE(fs::exists(scratch_.file("run/checkpoints/.step-7.tmp")));
}

TEST_F(TrainingRun, UsedDirectoryNeedsAWord) {
  train(request("run"));
  std::string message;
  EXPECT_EQ(code_of([&] { train(request("run")); }, &message), ExitCode::kUsage);
  EXPECT_THAT(message, testing::HasSubstr("--overwrite"));
  std::ofstream(scratch_.file("run/mine.txt")) << "not ours to remove";
  TrainRequest again = request("run");
  again.overwrite = true;
  train(again);
  EXPECT_TRUE(fs::exists(scratch_.file("run/mine.txt")));
}

TEST_F(TrainingRun, FiveStepsWithoutAFiniteGradientEndIt) {
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  train(request("run", {"optim.lr=1e18", "optim.clip=0", "optim.warmup=0", "optim.steps=40"}));
                },
                &message),
            ExitCode::kNumeric);
  EXPECT_THAT(message, testing::HasSubstr("5 steps in a row"));
  const nlohmann::json replay = nlohmann::json::parse(read_bytes(scratch_.file("run/replay.json")));
  EXPECT_TRUE(replay.contains("first_sample"));
  for (const auto& line : metrics("run")) EXPECT_TRUE(line["loss"].is_number() || line["loss"].is_null());
}

TEST_F(TrainingRun, NaNIsNeverTheBest) {
  code_of([&] { train(request("run", {"optim.lr=1e18", "optim.clip=0", "optim.warmup=0", "train.eval_every=1"})); });
  if (!fs::exists(scratch_.file("run/checkpoints/best"))) return;
  Model model(small_config(corpus_, "x", {"model.vocab_size=9"}).model);
  const LoadedModel best = load_model(resolve_model_path(scratch_.file("run")));
  const Tensor& values = best.model.parameters().values();
  for (std::int64_t i = 0; i < values.size(); ++i) ASSERT_TRUE(std::isfinite(values.at(i)));
}

TEST_F(TrainingRun, BestIsTheStepWithTheSmallestValidationLoss) {
  const TrainResult result = train(request("run", {"optim.lr=0.01"}));
  double best = INFINITY;
  std::int64_t step = -1;
  for (const auto& line : metrics("run")) {
    if (!line.contains("valid_loss")) continue;
    if (line["valid_loss"].get<double>() < best) {
      best = line["valid_loss"].get<double>();
      step = line["step"].get<std::int64_t>();
    }
  }
  EXPECT_EQ(result.best_step, step);
  EXPECT_EQ(fs::read_symlink(scratch_.file("run/checkpoints/best")).string(), "step-" + std::to_string(step));
}

TEST_F(TrainingRun, TrainingLearns) {
  const TrainResult result =
      train(request("run", {"optim.steps=60", "optim.lr=0.01", "model.dropout=0", "train.eval_every=60"}));
  const auto lines = metrics("run");
  EXPECT_GT(lines.front()["loss"].get<double>(), 3.8);
  EXPECT_LT(result.validation_loss, 3.0);
}

TEST_F(TrainingRun, Bf16FollowsTheLossOfFloat) {
  const std::vector<std::string> settings{"optim.steps=300", "model.dropout=0",      "model.attention_dropout=0",
                                          "data.batch=16",   "train.eval_every=300", "train.save_every=300"};
  train(request("f32", settings));
  std::vector<std::string> rounded = settings;
  rounded.push_back("train.dtype=bf16");
  train(request("bf16", rounded));
  const auto full = metrics("f32"), half = metrics("bf16");
  bool differs = false;
  for (std::size_t begin = 0; begin < 300; begin += 50) {
    double a = 0, b = 0;
    for (std::size_t i = begin; i < begin + 50; ++i) {
      a += full[i]["loss"].get<double>();
      b += half[i]["loss"].get<double>();
      differs = differs || full[i]["loss"] != half[i]["loss"];
    }
    EXPECT_NEAR(b / a, 1, 0.005) << "steps " << begin << " to " << begin + 50;
  }
  EXPECT_TRUE(differs) << "bf16 was not used";
}

TEST_F(TrainingRun, InitFromTakesTheFirstLayersAndChecksTheRest) {
  train(request("source", {"model.layers=3"}));
  TrainRequest fewer = request("fewer", {"attention.kind=cosine", "optim.steps=1", "optim.lr=1e-12"});
  fewer.init_from = scratch_.file("source");
  train(fewer);
  const LoadedModel source = load_model(resolve_model_path(scratch_.file("source")));
  const LoadedModel target = load_model(scratch_.file("fewer/checkpoints/latest/model.h5"));
  for (const Parameter& parameter : target.model.parameters().list()) {
    const Tensor wanted = source.model.parameters().find(parameter.name).variable.value();
    const Tensor got = parameter.variable.value();
    for (std::int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got.at(i), wanted.at(i), 1e-9) << parameter.name;
  }

  std::string message;
  TrainRequest more = request("more", {"model.layers=4"});
  more.init_from = scratch_.file("source");
  EXPECT_EQ(code_of([&] { train(more); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr("3 layers"));
  std::ofstream(scratch_.file("text.txt")) << "some other text\nwith other letters\nand few of them\n";
  PrepareOptions other;
  other.inputs = {scratch_.file("text.txt")};
  other.output = scratch_.file("other.h5");
  prepare(other);
  TrainRequest foreign = request("foreign", {"data.corpus=" + other.output});
  foreign.init_from = scratch_.file("source");
  EXPECT_EQ(code_of([&] { train(foreign); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr("another vocabulary"));
  TrainRequest wider = request("wider", {"model.hidden=40"});
  wider.init_from = scratch_.file("source");
  EXPECT_EQ(code_of([&] { train(wider); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr("word_embeddings"));
}

TEST_F(TrainingRun, NoCorpusIsSaid) {
  std::string message;
  TrainRequest nothing = request("run");
  nothing.config.data.corpus = "";
  EXPECT_EQ(code_of([&] { train(nothing); }, &message), ExitCode::kData);
  EXPECT_THAT(message, testing::HasSubstr("data.corpus"));
}

TEST_F(TrainingRun, TellsTheEntropyOfEachLayerWhenAsked) {
  train(request("asked", {"train.log_entropy=true"}));
  train(request("plain"));
  for (const auto& line : metrics("asked")) {
    ASSERT_EQ(line.contains("entropy"), line.contains("valid_loss"));
    if (!line.contains("entropy")) continue;
    ASSERT_EQ(line["entropy"].size(), 2u);
    EXPECT_GT(line["entropy"][1].get<double>(), 0);
    EXPECT_LT(line["entropy"][1].get<double>(), std::log(32.0));
  }
  EXPECT_TRUE(metrics("asked").back().contains("entropy"));
  EXPECT_FALSE(metrics("plain").back().contains("entropy"));
}

}  // namespace
}  // namespace gau
