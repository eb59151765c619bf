// Metrics: valid JSON whatever the numbers, a file that resumes without gaps or repeats, lines for people.
#include "train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "tests/train/scratch.h"

namespace gau {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepMetrics make(std::int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.learning_rate = 1e-3;
  metrics.seconds = 2;
  return metrics;
}

std::vector<std::int64_t> steps_in(const std::string& path) {
  std::vector<std::int64_t> steps;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  return steps;
}

TEST(Metrics, PerplexityOverflowsToInfinity) {
  EXPECT_DOUBLE_EQ(perplexity(0), 1);
  EXPECT_EQ(perplexity(1e6), kInfinity);
  EXPECT_TRUE(std::isnan(perplexity(std::nan(""))));
  EXPECT_THAT(progress_line(make(1, 1e6), 10, 1), HasSubstr("perplexity inf"));
}

TEST(Metrics, LinesAreValidJsonForEveryNumber) {
  for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
    StepMetrics metrics = make(7, bad);
    metrics.gradient_norm = bad;
    metrics.validation = ValidationMetrics{bad, bad, 3};
    const auto json = nlohmann::json::parse(to_json_line(metrics));
    EXPECT_TRUE(json["loss"].is_null());
    EXPECT_TRUE(json["grad_norm"].is_null());
    EXPECT_TRUE(json["valid_loss"].is_null());
    EXPECT_EQ(json["step"], 7);
  }
}

TEST(Metrics, LinesHaveEveryFigure) {
  const auto json = nlohmann::json::parse(to_json_line(make(3, 1.5)));
  for (const char* key :
       {"step", "loss", "perplexity", "accuracy", "lr", "grad_norm", "masked_tokens", "tokens_per_second", "mfu", "seconds"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_DOUBLE_EQ(json["loss"], 1.5);
  EXPECT_FALSE(json.contains("valid_loss"));
}

TEST(Metrics, AResumedFileHasEachStepOnce) {
  const Scratch scratch;
  const std::string path = scratch.file("metrics.jsonl");
  {
    MetricsFile file(path, 0);
    for (std::int64_t step = 1; step <= 7; ++step) file.write(make(step, 1));
  }
  std::ofstream(path, std::ios::app) << "{\"step\":8,\"los";
  {
    MetricsFile file(path, 5);
    for (std::int64_t step = 6; step <= 9; ++step) file.write(make(step, 1));
  }
  EXPECT_EQ(steps_in(path), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  { MetricsFile file(path, 0); }
  EXPECT_TRUE(steps_in(path).empty());
}

TEST(Metrics, LinesWaitWhileTheDiskIsFull) {
  const Scratch scratch;
  const std::string path = scratch.file("metrics.jsonl");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 500;
  MetricsFile file(path, 0);
  setrlimit(RLIMIT_FSIZE, &small);
  testing::internal::CaptureStderr();
  for (std::int64_t step = 1; step <= 7; ++step) file.write(make(step, 1));
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THROW(file.finish(), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(warning, HasSubstr("File too large"));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1);
  file.write(make(8, 1));
  file.finish();
  EXPECT_EQ(steps_in(path), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Metrics, AFileThatCannotBeWrittenIsAnError) { EXPECT_THROW(MetricsFile("/nowhere/at/all/metrics.jsonl", 0), Error); }

TEST(Metrics, Durations) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(125), "2m05s");
  EXPECT_EQ(duration_text(11220), "3h07m");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(duration_text(kInfinity), "?");
}

TEST(Progress, PrintsPlainLinesWithTheTimeLeft) {
  testing::internal::CaptureStderr();
  {
    Progress progress(100, 10);
    for (std::int64_t step = 1; step <= 20; ++step) progress.show(make(step, 2));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_THAT(text, HasSubstr("step 20/100, 2m40s left: loss 2.0000 perplexity 7.389"));
  EXPECT_THAT(text, HasSubstr("2m40s left"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\r")));
}

TEST(Progress, TheTimeLeftFollowsTheLatestSteps) {
  testing::internal::CaptureStderr();
  {
    Progress progress(300, 200);
    for (std::int64_t step = 1; step <= 200; ++step) {
      StepMetrics metrics = make(step, 2);
      metrics.seconds = step < 100 ? 50 : 1;
      progress.show(metrics);
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1m40s left"));
}

}  // namespace
}  // namespace gau
