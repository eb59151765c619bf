// Inspection of a tiny random model: figures against a plain computation, and every file that is written.
#include "train/inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "framework/hdf5_file.h"
#include "tests/train/quiet.h"
#include "tests/train/scratch.h"
#include "train/heatmap_plot.h"
#include "train/inspect_report.h"

namespace gau {
namespace {

Model tiny_model() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 16;
  config.intermediate = 24;
  config.key_size = 8;
  config.vocab_size = 40;
  config.attention.train_length = 8;
  Model model(config, DType::kF64);
  model.initialize(3);
  return model;
}

TokenWindow window(std::int32_t tokens, std::int32_t from) {
  TokenWindow ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.push_back(1 + (from + i * i + 3 * i) % 39);
  return ids;
}

Inspection inspected(const Model& model, std::int64_t rows = 512) {
  const Quiet quiet;
  InspectOptions options;
  options.lengths = {8, 24};
  options.methods = parse_methods("rope,rope+infoscale,window:w=3", model.config());
  options.rows = rows;
  Inspection result = inspect(model, {window(24, 0), window(24, 7)}, options);
  result.model = "tiny";
  result.source = "made";
  return result;
}

TEST(Inspector, FiguresAreThoseOfTheAttentionWeights) {
  const Model model = tiny_model();
  const Inspection result = inspected(model);
  ASSERT_EQ(result.figures.size(), 3u * 2 * 2);
  Planner planner(model.config(), parse_method("rope+infoscale"), DType::kF64);
  std::vector<double> entropy(2, 0), diagonal(2, 0), distance(2, 0);
  Tensor first;
  for (const TokenWindow& ids : {window(24, 7), window(24, 0)}) {
    ModelInputs inputs;
    inputs.ids = Tensor::from(ids, {1, 24});
    const std::vector<Tensor> weights = model.attention(inputs, planner);
    first = weights[1];
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (std::int64_t at = 0; at < 24 * 24; ++at) {
        const double p = weights[layer].at(at);
        entropy[layer] -= p * std::log(p) / 48;
        if (at / 24 == at % 24) diagonal[layer] += p / 48;
        distance[layer] += p * std::abs(static_cast<double>(at / 24 - at % 24)) / 48;
      }
    }
  }
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const LayerFigures& figures = result.at(1, 1, layer);
    EXPECT_EQ(figures.method, "rope+infoscale");
    EXPECT_EQ(figures.rows, 48);
    EXPECT_NEAR(figures.mean.entropy, entropy[layer], 1e-9);
    EXPECT_NEAR(figures.mean.diagonal, diagonal[layer], 1e-9);
    EXPECT_NEAR(figures.mean.distance, distance[layer], 1e-9);
    EXPECT_GT(figures.lambda.quantiles[4], figures.lambda.quantiles[0]);
    for (const auto& angles : {figures.random_angles, figures.attended_angles}) {
      EXPECT_NEAR(std::accumulate(angles.begin(), angles.end(), 0.0), 1, 1e-12);
    }
  }
  const Heatmap& map = result.at(1, 1, 1).heatmap;
  ASSERT_EQ(map.cells.size(), 576u);
  for (std::size_t at = 0; at < 576; ++at) EXPECT_NEAR(map.cells[at], 24 * first.at(static_cast<std::int64_t>(at)), 1e-5);
}

TEST(Inspector, AttendedPairsAreCloserThanRandomOnes) {
  const Inspection result = inspected(tiny_model());
  const auto mean = [](const std::array<double, kAngleBins>& shares) {
    double sum = 0;
    for (std::size_t bin = 0; bin < kAngleBins; ++bin) sum += shares[bin] * static_cast<double>(bin);
    return sum;
  };
  const LayerFigures& figures = result.at(0, 1, 0);
  EXPECT_LT(mean(figures.attended_angles), mean(figures.random_angles));
}

TEST(Inspector, SampledRowsGiveRowsOfTheWholeMap) {
  const Model model = tiny_model();
  const Heatmap whole = inspected(model).at(0, 1, 0).heatmap;
  const Inspection sampled = inspected(model, 6);
  EXPECT_EQ(sampled.at(0, 1, 0).rows, 12);
  const Heatmap& some = sampled.at(0, 1, 0).heatmap;
  ASSERT_EQ(some.rows, 6);
  for (std::size_t r = 0; r < 6; ++r) {  // rows 2, 6, 10, …
    for (std::size_t c = 0; c < 24; ++c) EXPECT_NEAR(some.cells[r * 24 + c], whole.cells[(4 * r + 2) * 24 + c], 1e-6);
  }
}

TEST(Inspector, LongSequencesGiveSmallMaps) {
  const Model model = tiny_model();
  const Quiet quiet;
  InspectOptions options;
  options.lengths = {1300};
  options.rows = 700;
  const Inspection result = inspect(model, {window(1300, 0)}, options);
  const Heatmap& map = result.at(0, 0, 1).heatmap;
  EXPECT_EQ(map.rows, 512);
  EXPECT_EQ(map.columns, 512);
  // Rows of weights add up to 1, so cells, weighed by their keys, have a mean of 1.
  double sum = 0;
  for (std::size_t c = 0; c < 512; ++c) {
    const auto first = [](std::size_t cell) { return (cell * 1300 + 511) / 512; };
    sum += map.cells[100 * 512 + c] * static_cast<double>(first(c + 1) - first(c));
  }
  EXPECT_NEAR(sum / 1300, 1, 1e-5);
}

TEST(InspectReport, WritesEveryArrayAndTable) {
  const Scratch scratch;
  const Inspection result = inspected(tiny_model());
  write_inspection(result, scratch.file("out"));
  const h5::Reader file(scratch.file("out/inspect.h5"));
  EXPECT_EQ(file.info("/entropy").shape, (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(file.read<double>("/entropy")[7], result.at(1, 1, 1).mean.entropy);
  EXPECT_EQ(file.info("/angles/attended").shape, (std::vector<std::int64_t>{3, 2, 2, 36}));
  EXPECT_EQ(file.info("/heatmaps/24").shape, (std::vector<std::int64_t>{3, 2, 24, 24}));
  EXPECT_EQ(file.read_strings("/methods")[2], "window:w=3");
  const auto json = nlohmann::json::parse(read_bytes(scratch.file("out/inspect.json")));
  EXPECT_EQ(json["results"].size(), 12u);
  EXPECT_EQ(json["results"][0]["lambda"].size(), 7u);
  const std::string csv = read_bytes(scratch.file("out/inspect.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 13);
  EXPECT_THAT(text_table(result), testing::HasSubstr("rope+infoscale layer 1"));
  if (std::filesystem::exists(scratch.file("out/entropy.png"))) {
    for (const char* name : {"entropy.svg", "distance.svg", "angles.svg", "angles.png", "heatmap.svg", "heatmap.png"}) {
      EXPECT_GT(std::filesystem::file_size(scratch.file(std::string("out/") + name)), 1000u) << name;
    }
  }
}

TEST(InspectReport, AFullHeatmapIsAnImageNotAPolygonACell) {
  const Scratch scratch;
  const Quiet quiet;
  Heatmap map{kHeatmapSide, kHeatmapSide, std::vector<float>(static_cast<std::size_t>(kHeatmapSide * kHeatmapSide), 1)};
  for (std::size_t at = 0; at < map.cells.size(); ++at) map.cells[at] += static_cast<float>(at % 7);
  if (!draw_heatmaps({{"a", &map, 1024}}, 1, "title", scratch.file("a.svg"), scratch.file("a.png"))) GTEST_SKIP();
  EXPECT_LT(std::filesystem::file_size(scratch.file("a.svg")), 2u << 20);
}

}  // namespace
}  // namespace gau
