// Calibration: entropy at the longer length becomes that of the training length, the factors live with the model, and what
// cannot be honoured is refused.
#include "train/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "framework/error.h"
#include "tests/train/quiet.h"
#include "tests/train/scratch.h"
#include "train/attention_stats.h"
#include "train/model_io.h"
#include "train/text_windows.h"

namespace gau {
namespace {

constexpr std::int64_t kTrainLength = 8;

ModelConfig tiny_config() {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 16;
  config.intermediate = 24;
  config.key_size = 8;
  config.vocab_size = 40;
  config.attention.kind = AttentionKind::kCosine;
  config.attention.scale = 6;
  config.attention.train_length = kTrainLength;
  return config;
}

std::vector<EvalDocument> documents() {
  std::mt19937 generator(5);
  std::vector<EvalDocument> all(4);
  for (EvalDocument& document : all) {
    document.tokens.resize(200);
    for (std::int32_t& token : document.tokens) token = static_cast<std::int32_t>(1 + generator() % 39);
  }
  return all;
}

CalibrateOptions options_of(std::vector<std::int64_t> lengths) {
  CalibrateOptions options;
  options.lengths = std::move(lengths);
  options.tokens = 800;
  return options;
}

/// Mean row entropy of each layer on the windows of that length.
std::vector<double> entropies(const Model& model, const std::string& method, std::int64_t length) {
  const auto windows = spaced_windows(documents(), length, 800 / length, "made");
  std::vector<std::int32_t> ids;
  for (const TokenWindow& window : windows) ids.insert(ids.end(), window.begin(), window.end());
  ModelInputs inputs;
  inputs.ids = Tensor::from(ids, {static_cast<std::int64_t>(windows.size()), length});
  std::vector<double> result;
  Planner planner(model.config(), parse_method(method), model.dtype());
  model.visit_attention(inputs, planner, [&](std::int64_t, const AttentionInputs& in, const AttentionPlan& plan) {
    result.push_back(mean_of(row_figures(in, plan)).entropy);
  });
  return result;
}

void expect_calibrated(const ModelConfig& config, const std::string& position) {
  const Quiet quiet;
  Model model(config);
  model.initialize(3);
  CalibrateOptions options = options_of({32, 64});
  options.position = position;
  const Model fitted = with_calibration(model, calibrate(model, documents(), "made", options));
  const std::vector<double> wanted = entropies(model, position, kTrainLength);
  for (const std::int64_t length : {32, 64}) {
    const std::vector<double> before = entropies(model, position, length);
    const std::vector<double> after = entropies(fitted, position + "+calibrated", length);
    for (std::size_t layer = 0; layer < wanted.size(); ++layer) {
      EXPECT_GT(before[layer], wanted[layer] + 0.3) << position << " " << layer;
      EXPECT_NEAR(after[layer], wanted[layer], 2e-3) << position << " " << layer << " at " << length;
    }
  }
  const std::vector<double> same = entropies(fitted, position + "+calibrated", kTrainLength);
  for (std::size_t layer = 0; layer < wanted.size(); ++layer) EXPECT_NEAR(same[layer], wanted[layer], 1e-12);
}

TEST(Calibrate, GivesLongContextsTheEntropyOfTheTrainingLength) {
  expect_calibrated(tiny_config(), "rope");
  expect_calibrated(tiny_config(), "rerope:w=4");
}

TEST(Calibrate, IsRelativeToTheLawThatTheModelWasTrainedWith) {
  ModelConfig config = tiny_config();
  config.attention.law = "softmax_plus";
  config.attention.scale = 12;
  expect_calibrated(config, "rope");
}

TEST(Calibrate, TheFactorsAndTheirTargetsAreInTheModelFile) {
  const Quiet quiet;
  const Scratch scratch;
  Model model(tiny_config());
  model.initialize(3);
  const auto reports = calibrate(model, documents(), "made", options_of({64, 32, 64}));
  ASSERT_EQ(reports.size(), 2u);
  save_model(scratch.file("model.h5"), with_calibration(model, reports), {});
  const LoadedModel loaded = load_model(scratch.file("model.h5"));
  const auto& stored = loaded.model.config().attention.calibration;
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[1].length, 64);
  EXPECT_EQ(stored[1].factors, reports[1].fitted.factors);
  EXPECT_EQ(stored[1].targets, reports[1].target);
  EXPECT_EQ(entropies(loaded.model, "calibrated", 64), entropies(with_calibration(model, reports), "calibrated", 64));
}

TEST(Calibrate, RefusesWhatItCannotFit) {
  const auto refusal = [](const ModelConfig& config, const CalibrateOptions& options) -> std::string {
    Model model(config);
    model.initialize(3);
    try {
      calibrate(model, documents(), "made.h5", options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(tiny_config(), options_of({8})), testing::HasSubstr("above the training length, 8"));
  EXPECT_THAT(refusal(tiny_config(), options_of({512})), testing::HasSubstr("made.h5: no document has 512"));
  ModelConfig unknown = tiny_config();
  unknown.attention.train_length = 0;
  EXPECT_THAT(refusal(unknown, options_of({32})), testing::HasSubstr("at which length it was trained"));
}

TEST(Calibrate, AModelWithoutFactorsIsRefusedWithTheReason) {
  try {
    Planner(tiny_config(), parse_method("rope+calibrated"), DType::kF32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("holds no calibrated factors"));
    EXPECT_EQ(error.code(), ExitCode::kUsage);
  }
}

}  // namespace
}  // namespace gau
