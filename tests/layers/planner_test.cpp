// What a plan takes from the batch: keys counted, factors of rows, positions of each sample's own.
#include "layers/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/error.h"
#include "framework/random.h"
#include "planner_helpers.h"

namespace gau {
namespace {

TEST(Planner, CountsTheKeysThatARowSees) {
  constexpr std::int64_t kLength = 23;
  const RandomKey key{5, 0, Site::kMask, 0};
  std::vector<std::int32_t> mask;
  for (std::uint32_t b = 0; b < 3; ++b) {
    for (std::uint32_t j = 0; j < kLength; ++j) mask.push_back(b < 2 && key.uniform(b, j, 0) < 0.6 ? 1 : 0);
  }
  BatchLayout batch = layout(kLength, 3);
  for (const bool padded : {false, true}) {
    if (padded) batch.key_mask = Tensor::from(mask, {3, kLength});
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{3}, std::int64_t{22}, AttentionPlan::kUnlimited}) {
      for (const std::int64_t sinks : {0, 2, 9, 40}) {
        for (const std::int64_t rows : {0, 4, 40}) {
          AttentionPlan plan;
          plan.window = window;
          plan.sinks = sinks;
          plan.rows = rows;
          plan.mask_diagonal = sinks == 2;
          const Tensor keys = Planner::visible_keys(plan, batch);
          for (std::int64_t b = 0; b < 3; ++b) {
            for (std::int64_t i = 0; i < kLength; ++i) {
              double count = 0;
              for (std::int64_t j = 0; j < kLength; ++j) {
                const bool valid = !padded || mask[static_cast<std::size_t>(b * kLength + j)] != 0;
                count += valid && plan.visible(i, j) ? 1 : 0;
              }
              ASSERT_EQ(keys.at(b * kLength + i), count) << window << " " << sinks << " " << rows << " " << b << " " << i;
            }
          }
        }
      }
    }
  }
}

double infoscale(double l) { return std::sqrt((1 - std::pow(l, -2.0 / kKeySize)) / (1 - std::pow(kTrain, -2.0 / kKeySize))); }

TEST(Planner, RowFactorsFollowTheKeysOfEachRow) {
  BatchLayout batch = layout(20, 2);
  std::vector<std::int32_t> mask(40, 1);
  for (std::size_t j = 30; j < 40; ++j) mask[j] = 0;
  batch.key_mask = Tensor::from(mask, {2, 20});
  const double base = 1 / std::sqrt(8.0);

  Planner visible(model(), parse_method("window:w=3+infoscale"), DType::kF64);
  const AttentionPlan plan = visible.plan(0, batch);
  EXPECT_NEAR(plan.row_factor.at(0), base * infoscale(4), 1e-14);
  EXPECT_NEAR(plan.row_factor.at(10), base * infoscale(7), 1e-14);
  EXPECT_NEAR(plan.row_factor.at(20 + 10), base * infoscale(3), 1e-14);
  EXPECT_NEAR(plan.row_factor.at(20 + 13), base, 1e-14);  // sees padding alone

  Planner valid(model(), parse_method("window:w=3+infoscale:count=valid"), DType::kF64);
  const AttentionPlan published = valid.plan(0, batch);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(published.row_factor.at(i), base * infoscale(20), 1e-14);
    EXPECT_NEAR(published.row_factor.at(20 + i), base * infoscale(10), 1e-14);
  }
}

TEST(Planner, AnEmptySequenceHasFactorOne) {
  BatchLayout batch = layout(4);
  batch.key_mask = Tensor::from(std::vector<std::int32_t>(4, 0), {1, 4});
  for (const char* entry : {"infoscale", "logn", "softmax-plus", "infoscale:count=valid"}) {
    Planner planner(model(), parse_method(entry), DType::kF64);
    EXPECT_EQ(planner.plan(0, batch).row_factor.at(0), 1 / std::sqrt(8.0)) << entry;
  }
}

TEST(Planner, APaddedSequenceHasTheFactorsOfTheUnpaddedOne) {
  BatchLayout batch = layout(30);
  std::vector<std::int32_t> mask(30, 0);
  std::fill(mask.begin(), mask.begin() + 21, 1);
  batch.key_mask = Tensor::from(mask, {1, 30});
  batch.nominal_length = 21;
  for (const char* entry : {"rope+infoscale", "streaming+logn", "window:w=3+infoscale", "pi+softmax-plus", "leaky-rerope"}) {
    Planner planner(model(), parse_method(entry), DType::kF64);
    const AttentionPlan padded = planner.plan(0, batch);
    EXPECT_TRUE(same(padded, planner.plan(0, layout(21)), 21)) << entry;
  }
}

TEST(Planner, TheBaseScaleIsThatOfTheAttention) {
  ModelConfig config = model();
  config.attention.kind = AttentionKind::kKeyNorm;
  EXPECT_EQ(plan_of("rope", 4, 0, config).row_factor.at(0), 1);
  config.attention.kind = AttentionKind::kCosine;
  config.attention.scale = 16;
  EXPECT_EQ(plan_of("rope", 4, 0, config).row_factor.at(0), 16);
  EXPECT_EQ(plan_of("cosscale:s=64", 4, 0, config).row_factor.at(0), 64);
  Planner planner(config, parse_method("cosscale:s=64"), DType::kF32);
  EXPECT_EQ(planner.plan(0, layout(4), 4.5).row_factor.at(0), 4.5);
  config.attention.learn_scale = true;
  EXPECT_EQ(plan_of("rope", 4, 0, config).row_factor.at(0), 1);
}

TEST(Planner, OnlyCosineAttentionBoundsItsLogits) {
  EXPECT_TRUE(std::isinf(plan_of("rope", 40).logit_bound));
  ModelConfig config = model();
  config.attention.kind = AttentionKind::kCosine;
  config.attention.scale = 16;
  EXPECT_EQ(plan_of("rope", 40, 0, config).logit_bound, 16);
  EXPECT_NEAR(plan_of("infoscale", 40, 0, config).logit_bound, 16 * infoscale(40), 1e-12);
  const double magnitude = 0.1 * std::log(2.5) + 1;
  EXPECT_NEAR(plan_of("yarn", 40, 0, config).logit_bound, 16 * magnitude * magnitude, 1e-12);
  EXPECT_TRUE(std::isinf(plan_of("alibi", 40, 0, config).logit_bound));
  EXPECT_TRUE(std::isinf(plan_of("scale-invariant", 40, 0, config).logit_bound));
  config.attention.learn_scale = true;
  EXPECT_TRUE(std::isinf(plan_of("rope", 40, 0, config).logit_bound));
}

TEST(Planner, HwfaAppliesItsLawToTheFullLayer) {
  const double base = 1 / std::sqrt(8.0);
  EXPECT_NEAR(plan_of("hwfa+infoscale", 40, 0).row_factor.at(20), base, 1e-14);
  EXPECT_NEAR(plan_of("hwfa+infoscale", 40, 2).row_factor.at(20), base * infoscale(40), 1e-14);
}

TEST(Planner, SsmaxGivesTheLogarithmInEveryLayer) {
  ModelConfig config = model();
  config.attention.law = "ssmax";
  EXPECT_NEAR(plan_of("rope", 40, 0, config).row_factor.at(3), std::log(40.0) / std::sqrt(8.0), 1e-14);
  config.attention.position = "hwfa";
  EXPECT_NEAR(plan_of("ssmax", 40, 0, config).row_factor.at(20), std::log(5.0) / std::sqrt(8.0), 1e-14);
}

TEST(Planner, CalibratedFactorsBelongToLayerAndLength) {
  ModelConfig config = model();
  config.attention.calibration = {{32, {1.5, 2, 3}}, {64, {4, 5, 6}}};
  const double base = 1 / std::sqrt(8.0);
  EXPECT_NEAR(plan_of("calibrated", 32, 1, config).row_factor.at(0), 2 * base, 1e-15);
  EXPECT_NEAR(plan_of("calibrated", 64, 2, config).row_factor.at(5), 6 * base, 1e-15);
  EXPECT_NEAR(plan_of("calibrated", 16, 2, config).row_factor.at(5), base, 1e-15);
  EXPECT_THROW(plan_of("calibrated", 33, 0, config), Error);
}

TEST(Planner, ScaleInvariantAttentionChangesLogitsByDistance) {
  const AttentionPlan plan = plan_of("scale-invariant", 50);
  ASSERT_TRUE(plan.has_distance_law());
  EXPECT_EQ(plan.distance_scale.at(0), 1);
  EXPECT_EQ(plan.distance_shift.at(0), 0);
  for (const std::size_t distance : {1U, 10U, 49U}) {
    // For logits of unit variance the expected weight falls as 1 / (1 + distance / 10).
    const double a = plan.distance_scale.at(distance);
    const double m = plan.distance_shift.at(distance);
    EXPECT_NEAR(std::exp(m + a * a / 2), std::exp(0.5) / (1 + static_cast<double>(distance) / 10), 1e-13);
    EXPECT_NEAR(m + a * a, 1, 1e-13);
  }
  EXPECT_NEAR(plan_of("scale-invariant:tau=2", 4).distance_shift.at(2), -2 * std::log(2.0), 1e-14);
  EXPECT_FALSE(plan_of("rope", 50).has_distance_law());
}

TEST(Planner, TheModelsWindowHoldsForItsOwnPosition) {
  ModelConfig config = model();
  config.attention.window = 5;
  EXPECT_EQ(plan_of("logn", 40, 0, config).window, 5);
  EXPECT_EQ(plan_of("rope", 40, 0, config).window, AttentionPlan::kUnlimited);
  config.attention.mask_diagonal = true;
  EXPECT_FALSE(plan_of("logn", 40, 0, config).visible(3, 3));
}

TEST(Planner, SamplesMayHavePositionsOfTheirOwn) {
  BatchLayout batch = layout(3, 2);
  batch.positions = Tensor::from(std::vector<double>{0, 1, 2, 0, 7, 30}, {2, 3});
  Planner planner(model(), parse_method("pose"), DType::kF64);
  const AttentionPlan plan = planner.plan(0, batch);
  ASSERT_EQ(plan.near.q.cos.shape(), (Shape{2, 3, kKeySize / 2}));
  EXPECT_EQ(plan.near.q.cos.at(4 * kKeySize / 2), std::cos(7.0));
  EXPECT_EQ(plan.near.k.sin.at(5 * kKeySize / 2), std::sin(30.0));
  // Other positions in the same buffer are other tables.
  batch.positions.data<double>()[4] = 9;
  EXPECT_EQ(planner.plan(1, batch).near.q.cos.at(4 * kKeySize / 2), std::cos(9.0));
  for (const char* entry : {"rerope", "leaky-rerope", "streaming", "lm-infinite"}) {
    EXPECT_THROW(Planner(model(), parse_method(entry), DType::kF64).plan(0, batch), Error) << entry;
  }
}

TEST(Planner, RefusesLayersAndMasksThatAreNotThere) {
  Planner planner(model(), parse_method("rope"), DType::kF32);
  EXPECT_THROW(planner.plan(3, layout(4)), Error);
  EXPECT_THROW(planner.plan(0, layout(0)), Error);
  BatchLayout wrong = layout(4);
  wrong.key_mask = Tensor::zeros({1, 3}, DType::kI32);
  EXPECT_THROW(planner.plan(0, wrong), Error);
  EXPECT_THROW(Planner(model(), parse_method("rope"), DType::kBF16), Error);
}

TEST(Planner, LeavesOutOnlyWhatTheTypeCannotNotice) {
  ModelConfig config;
  config.vocab_size = 9;
  config.attention.train_length = 64;
  EXPECT_EQ(Planner(config, Method{}, DType::kF32).plan(0, {1, 8, {}, {}, 0}).skip, 0x1p-24);
  EXPECT_EQ(Planner(config, Method{}, DType::kF64).plan(0, {1, 8, {}, {}, 0}).skip, 0x1p-53);
}

}  // namespace
}  // namespace gau
