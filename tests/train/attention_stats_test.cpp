// Figures of attention on hand-made rows, and the table of entropies of random unit vectors (docs/methods.md).
#include "train/attention_stats.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "layers/temperature.h"

namespace gau {
namespace {

AttentionPlan unrotated(std::int64_t batch, std::int64_t length) {
  AttentionPlan plan;
  plan.row_factor = Tensor::zeros({batch, length}, DType::kF64);  // already folded into q
  return plan;
}

AttentionInputs inputs(const std::vector<double>& q, const std::vector<double>& k, std::int64_t width) {
  AttentionInputs in;
  in.q_near = Tensor::from(q, {1, static_cast<std::int64_t>(q.size()) / width, width});
  in.k_near = Tensor::from(k, {1, static_cast<std::int64_t>(k.size()) / width, width});
  return in;
}

TEST(AttentionStats, UniformAttention) {
  constexpr std::int64_t kLength = 5;
  const AttentionInputs in = inputs(std::vector<double>(2 * kLength, 0.0), std::vector<double>(2 * kLength, 1.0), 2);
  const std::vector<RowFigures> rows = row_figures(in, unrotated(1, kLength));
  ASSERT_EQ(rows.size(), 5u);
  for (const RowFigures& row : rows) {
    EXPECT_NEAR(row.entropy, std::log(5.0), 1e-12);
    EXPECT_NEAR(row.uniform, std::log(5.0), 1e-12);
    EXPECT_NEAR(row.diagonal, 0.2, 1e-12);
  }
  EXPECT_NEAR(rows[0].distance, (0 + 1 + 2 + 3 + 4) / 5.0, 1e-12);
  EXPECT_NEAR(rows[2].distance, (2 + 1 + 0 + 1 + 2) / 5.0, 1e-12);
  EXPECT_NEAR(mean_of(rows).distance, (2 + 1.4 + 1.2 + 1.4 + 2) / 5, 1e-12);
  EXPECT_TRUE(std::isinf(row_lambda(std::vector<double>(5, 0.2))));
}

TEST(AttentionStats, AttentionToOneKey) {
  // Every q asks for key 3 of 4, which is 200 nats above the others.
  const AttentionInputs in = inputs({200, 200, 200, 200}, {0, 0, 0, 1}, 1);
  const std::vector<RowFigures> rows = row_figures(in, unrotated(1, 4));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rows[i].entropy, 0, 1e-12);
    EXPECT_NEAR(rows[i].distance, 3.0 - static_cast<double>(i), 1e-12);
    EXPECT_NEAR(rows[i].diagonal, i == 3 ? 1 : 0, 1e-12);
  }
}

TEST(AttentionStats, WindowAndPaddingCountOnlyKeysThatAreSeen) {
  AttentionInputs in = inputs(std::vector<double>(6, 0.0), std::vector<double>(6, 1.0), 1);
  in.key_mask = Tensor::from(std::vector<std::int32_t>{1, 1, 1, 1, 0, 0}, {1, 6});
  AttentionPlan plan = unrotated(1, 6);
  plan.window = 1;
  const std::vector<RowFigures> rows = row_figures(in, plan);
  ASSERT_EQ(rows.size(), 4u);  // rows of padding are no rows
  EXPECT_NEAR(rows[0].entropy, std::log(2.0), 1e-12);
  EXPECT_NEAR(rows[1].entropy, std::log(3.0), 1e-12);
  EXPECT_NEAR(rows[1].uniform, std::log(3.0), 1e-12);
  EXPECT_NEAR(rows[3].uniform, std::log(2.0), 1e-12);
}

TEST(AttentionStats, LambdaOfASortedExample) {
  // Logits 3, 1, 2.5, 0: gaps 0.5, 2, 3 at ranks 2, 3, 4.
  std::vector<double> weights;
  double total = 0;
  for (const double logit : {3.0, 1.0, 2.5, 0.0}) {
    weights.push_back(std::exp(logit));
    total += weights.back();
  }
  for (double& p : weights) p /= total;
  EXPECT_NEAR(row_lambda(weights), std::log(2.0) / 0.5, 1e-12);
  weights[2] = weights[3] = std::exp(0.9) / total;  // now gaps 2, 2.1, 2.1: the last rank decides
  EXPECT_NEAR(row_lambda(weights), std::log(4.0) / 2.1, 1e-12);
  EXPECT_EQ(row_lambda(std::vector<double>{0, 1, 0}), 0);
}

TEST(AttentionStats, LambdaSeesGapsThatFloatWeightsLose) {
  // Gaps of 128 nats are 0 as weights in float.
  const AttentionInputs in = inputs({128, 128, 128}, {1, 0, 0}, 1);
  std::vector<double> lambda(3);
  for_attention_rows(in, unrotated(1, 3),
                     [&](const AttentionRow& row) { lambda[static_cast<std::size_t>(row.index)] = row_lambda(row.weights); });
  for (const double value : lambda) EXPECT_NEAR(value, std::log(3.0) / 128, 1e-9);
}

TEST(AttentionStats, SpacedRowsCoverTheSequence) {
  EXPECT_EQ(spaced_rows(8, 20).size(), 8u);
  EXPECT_EQ(spaced_rows(8, 4), (std::vector<std::int32_t>{1, 3, 5, 7}));
  const Tensor flat = spaced_rows(2, 8, 2);
  EXPECT_EQ(flat.at(1), 6);
  EXPECT_EQ(flat.at(2), 10);
}

// Independent random unit vectors q, k at d = 128: mean row entropy of s · cos(q, k), unscaled and with InfoScale trained
// at 64.
Tensor unit_vectors(std::int64_t count, double scale, std::mt19937_64& generator) {
  constexpr std::int64_t kWidth = 128;
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count * kWidth));
  for (float& value : values) value = normal(generator);
  for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
    double squares = 0;
    for (std::size_t c = 0; c < kWidth; ++c) squares += std::pow(values[row * kWidth + c], 2);
    for (std::size_t c = 0; c < kWidth; ++c) values[row * kWidth + c] *= static_cast<float>(scale / std::sqrt(squares));
  }
  return Tensor::from(values, {1, count, kWidth});
}

double random_entropy(std::int64_t length, double scale, const char* law, std::uint64_t seed) {
  constexpr std::int64_t kRowsOfACall = 256, kRows = 2048;
  const double factor = temperature(parse_law(law), length, 64, 128);
  std::mt19937_64 generator(seed);
  std::vector<RowFigures> rows;
  while (static_cast<std::int64_t>(rows.size()) < kRows) {
    AttentionInputs in;
    const std::int64_t queries = std::min(kRowsOfACall, length);
    in.q_near = unit_vectors(queries, scale * factor, generator);
    in.k_near = unit_vectors(length, 1, generator);
    std::vector<std::int32_t> positions = spaced_rows(length, queries);
    in.rows = Tensor::from(positions, {1, queries});
    const auto some = row_figures(in, unrotated(1, length));
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return mean_of(rows).entropy;
}

struct EntropyCase {
  double scale;
  const char* law;
  std::array<double, 4> entropy;  // at l = 64, 256, 1024, 4096
};

class RandomUnitVectors : public testing::TestWithParam<EntropyCase> {};

TEST_P(RandomUnitVectors, HaveTheEntropyOfTheTable) {
  const EntropyCase& c = GetParam();
  std::int64_t length = 64;
  for (const double wanted : c.entropy) {
    EXPECT_NEAR(random_entropy(length, c.scale, c.law, static_cast<std::uint64_t>(length)), wanted, 0.1)
        << "l " << length << ", s " << c.scale << ", " << c.law;
    length *= 4;
  }
}

INSTANTIATE_TEST_SUITE_P(AttentionStats, RandomUnitVectors,
                         testing::Values(EntropyCase{32, "none", {1.93, 2.81, 3.79, 4.91}},
                                         EntropyCase{32, "infoscale", {1.93, 2.41, 2.82, 3.24}},
                                         EntropyCase{128, "none", {0.40, 0.52, 0.60, 0.71}},
                                         EntropyCase{128, "infoscale", {0.42, 0.41, 0.44, 0.46}}));

}  // namespace
}  // namespace gau
