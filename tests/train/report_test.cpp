// Tables and files of an evaluation: CSV parses back, JSON is valid with infinite values as null, plots land where they should.
#include "train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace gau {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

EvalRow row(const std::string& method, std::int64_t length, double loss, double accuracy) {
  EvalRow out;
  out.method = method;
  out.length = length;
  out.targets = 1234;
  out.documents = 56;
  out.skipped = 7;
  out.loss = {loss, loss - 0.03, loss + 0.04};
  out.accuracy = {accuracy, accuracy - 0.01, accuracy + 0.012};
  out.intervals = "bootstrap over documents";
  out.seconds = 1.5;
  return out;
}

Evaluation example(const std::string& model, double offset) {
  Evaluation out;
  out.model = model;
  out.protocol = "fixed-target";
  out.corpus = "books.h5";
  out.split = "test";
  out.train_length = 64;
  out.rows.push_back(row("crop", 64, 2.84 + offset, 0.42));
  std::int64_t length = 64;
  for (double growth : {0.0, 0.22, 0.63, 1.29, 2.15, 3.18, 4.22}) {
    out.rows.push_back(row("rope", length, 2.845 + offset + growth, 0.42 - growth / 20));
    out.rows.back().delta = {growth, growth - 0.01, growth + 0.01};
    length *= 2;
  }
  for (std::int64_t at : {64, 256, 1024, 4096}) {
    out.rows.push_back(
        row("leaky-rerope:w=32;k=8+infoscale", at, 2.845 + offset + 0.02 * std::log2(static_cast<double>(at) / 64), 0.43));
  }
  return out;
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool inside = false;
  for (char c : line) {
    if (c == '"') {
      inside = !inside;
    } else if (c == ',' && !inside) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CsvTable, ParsesBackToTheSameNumbers) {
  std::vector<Evaluation> evaluations{example("dot, small", 0)};
  evaluations[0].rows[3].loss.value = 1e4;  // its perplexity overflows
  std::istringstream lines(csv_table(evaluations));
  std::string line;
  std::getline(lines, line);
  const auto header = split(line);
  for (const EvalRow& expected : evaluations[0].rows) {
    ASSERT_TRUE(std::getline(lines, line));
    const auto fields = split(line);
    ASSERT_EQ(fields.size(), header.size());
    const auto field = [&](const std::string& name) {
      return fields[static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin())];
    };
    EXPECT_EQ(field("model"), "dot, small");
    EXPECT_EQ(field("method"), expected.method);
    EXPECT_EQ(std::stoll(field("length")), expected.length);
    EXPECT_EQ(std::stod(field("loss")), expected.loss.value);
    EXPECT_EQ(std::stod(field("accuracy_high")), expected.accuracy.high);
    EXPECT_EQ(std::strtod(field("perplexity").c_str(), nullptr), std::exp(expected.loss.value));
    EXPECT_EQ(field("entropy"), "");
  }
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_THAT(csv_table(evaluations), HasSubstr(",inf,"));
}

TEST(Json, IsValidAndInfinityIsNull) {
  Evaluation evaluation = example("dot", 0);
  evaluation.rows[1].loss = {1e4, std::nan(""), std::nan("")};
  const std::string text = to_json(evaluation).dump();
  const auto parsed = nlohmann::json::parse(text);
  EXPECT_EQ(parsed["model"], "dot");
  EXPECT_EQ(parsed["protocol"], "fixed-target");
  EXPECT_EQ(parsed["corpus"]["split"], "test");
  const auto& bad = parsed["results"][1];
  EXPECT_EQ(bad["loss"], 1e4);
  EXPECT_TRUE(bad["perplexity"].is_null());
  EXPECT_TRUE(bad["loss_low"].is_null());
  EXPECT_TRUE(bad["entropy"].is_null());
  for (const char* key :
       {"method", "length", "targets", "documents", "skipped", "loss", "loss_low", "loss_high", "perplexity", "accuracy",
        "accuracy_low", "accuracy_high", "delta", "delta_low", "delta_high", "entropy", "seconds"}) {
    EXPECT_TRUE(bad.contains(key)) << key;
  }
}

TEST(TextTable, HasARowAMethodAColumnALengthAndModelsWhenThereAreSeveral) {
  std::vector<Evaluation> one{example("dot", 0)};
  one[0].rows[7].loss.value = 1e4;
  const std::string text = text_table(one);
  EXPECT_THAT(text, HasSubstr("perplexity"));
  EXPECT_THAT(text, HasSubstr("16.7-17.9"));  // exp(2.845 - 0.03), exp(2.845 + 0.04)
  EXPECT_THAT(text, HasSubstr("17.2"));
  EXPECT_THAT(text, HasSubstr("inf"));
  EXPECT_THAT(text, HasSubstr("bootstrap over documents"));
  EXPECT_THAT(text, HasSubstr("loss - crop"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("dot: rope")));
  const std::vector<Evaluation> two{example("点积", 0), example("cosine", -0.1)};
  EXPECT_THAT(text_table(two), HasSubstr("点积: rope"));
  EXPECT_THAT(text_table(two), HasSubstr("cosine: rope"));
}

TEST(DisplayWidth, CountsWideCharactersTwice) {
  EXPECT_EQ(display_width("dot"), 3u);
  EXPECT_EQ(display_width("点积"), 4u);
  EXPECT_EQ(display_width("α–β"), 3u);
}

TEST(MakePlot, LeavesGapsForInfinityAndShowsCropAsALevel) {
  std::vector<Evaluation> evaluations{example("it's", 0)};
  evaluations[0].rows[2].loss.value = 1e4;
  const Plot plot = make_plot(evaluations, Figure::kPerplexity);
  EXPECT_TRUE(plot.log_y);
  ASSERT_EQ(plot.series.size(), 2u);
  ASSERT_EQ(plot.levels.size(), 1u);
  EXPECT_THAT(gnuplot_data(plot), HasSubstr("128 NaN NaN NaN"));
  EXPECT_THAT(gnuplot_script(plot, Picture::kSvg), HasSubstr("'it''s (fixed-target)'"));
  EXPECT_FALSE(make_plot(evaluations, Figure::kAccuracy).log_y);
}

class ReportFiles : public ::testing::Test {
 protected:
  // Spaces, quotes and Chinese characters in the path must not matter.
  fs::path directory_ = fs::path(::testing::TempDir()) / ("gau report's 图表 " + std::to_string(getpid()));
  void TearDown() override { fs::remove_all(directory_); }
};

TEST_F(ReportFiles, AreWrittenIntoADirectoryOfAnyName) {
  const std::vector<Evaluation> evaluations{example("点积 \"dot\"", 0), example("cosine_s=16", -0.1)};
  write_report(evaluations, directory_.string());
  EXPECT_EQ(slurp(directory_ / "eval.csv"), csv_table(evaluations));
  EXPECT_EQ(nlohmann::json::parse(slurp(directory_ / "eval.json"))["evaluations"].size(), 2u);
  if (std::system("command -v gnuplot > /dev/null") != 0) return;
  for (const char* name : {"perplexity", "accuracy"}) {
    EXPECT_EQ(slurp(directory_ / (std::string(name) + ".png")).substr(0, 4), "\x89PNG");
    EXPECT_THAT(slurp(directory_ / (std::string(name) + ".svg")), HasSubstr("cosine_s=16: rope"));
  }
}

TEST_F(ReportFiles, AreWrittenWithoutGnuplotToo) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  ::testing::internal::CaptureStderr();
  write_report(std::vector<Evaluation>{example("dot", 0)}, directory_.string());
  const std::string messages = ::testing::internal::GetCapturedStderr();
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(messages, HasSubstr("gnuplot-nox"));
  EXPECT_TRUE(fs::exists(directory_ / "eval.csv"));
  EXPECT_TRUE(fs::exists(directory_ / "eval.json"));
  EXPECT_FALSE(fs::exists(directory_ / "perplexity.png"));
}

TEST(WriteReport, NamesADirectoryThatCannotBeMade) {
  EXPECT_THROW(write_report(std::vector<Evaluation>{example("dot", 0)}, "/dev/null/x"), std::exception);
}

}  // namespace
}  // namespace gau
