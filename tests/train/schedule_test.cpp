// Schedules: above 0 on every step, shapes at their ends, the published recipe.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gau {
namespace {

OptimConfig make(ScheduleKind kind, std::int64_t steps, double warmup) {
  OptimConfig optim;
  optim.schedule = kind;
  optim.steps = steps;
  optim.warmup = warmup;
  optim.lr = 2;
  optim.points = {{0, 1.0}, {3, 0.5}, {20, 0.01}};
  return optim;
}

TEST(Schedule, IsFiniteAndPositiveOnEveryStep) {
  for (const auto kind : {ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kPiecewise, ScheduleKind::kConstant})
    for (const std::int64_t steps : {1, 2, 3, 10, 101, 4096})
      for (const double warmup : {0.0, 0.1, 0.5, 0.999, static_cast<double>(steps - 1)}) {
        const OptimConfig optim = make(kind, steps, warmup);
        for (std::int64_t step = 0; step < steps; ++step) {
          const double rate = learning_rate(optim, step);
          ASSERT_TRUE(std::isfinite(rate) && rate > 0 && rate <= optim.lr) << steps << " " << warmup << " " << step;
        }
      }
}

TEST(Schedule, WarmupRisesFromTheFirstStepToThePeak) {
  const OptimConfig optim = make(ScheduleKind::kLinear, 100, 4);
  for (std::int64_t k = 0; k < 4; ++k) EXPECT_DOUBLE_EQ(learning_rate(optim, k), 2 * static_cast<double>(k + 1) / 4);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 4), 2);
}

TEST(Schedule, LinearReachesZeroOneStepAfterTheLast) {
  const OptimConfig optim = make(ScheduleKind::kLinear, 10, 0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0), 2);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 5), 1);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 9), 0.2);
}

TEST(Schedule, CosineIsHalfInTheMiddle) {
  const OptimConfig optim = make(ScheduleKind::kCosine, 100, 0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0), 2);
  EXPECT_NEAR(learning_rate(optim, 50), 1, 1e-12);
  EXPECT_NEAR(learning_rate(optim, 75), 1 - std::cos(std::acos(-1.0) / 4), 1e-12);
}

TEST(Schedule, PublishedPiecewiseRecipe) {
  OptimConfig optim = make(ScheduleKind::kPiecewise, 2000000, 0);
  optim.lr = 1.76e-3;
  optim.points = {{0, 1}, {160000, 0.5}, {640000, 0.1}, {1280000, 0.01}};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0), 1.76e-3);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 80000), 1.76e-3 * 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 160000), 1.76e-3 * 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 400000), 1.76e-3 * 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 640000), 1.76e-3 * 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 960000), 1.76e-3 * 0.055);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1280000), 1.76e-3 * 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1999999), 1.76e-3 * 0.01);
}

TEST(Schedule, PublishedFineTuningRecipe) {
  OptimConfig optim = make(ScheduleKind::kLinear, 1000, 0.1);
  optim.lr = 1e-5;
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0), 1e-7);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 99), 1e-5);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 550), 1e-5 * 450 / 900);
}

TEST(Schedule, CosineScaleRisesFromFour) {
  AttentionConfig attention;
  attention.kind = AttentionKind::kCosine;
  attention.scale = 64;
  attention.scale_warmup = 0.5;
  EXPECT_DOUBLE_EQ(cosine_scale(attention, 20, 0), 4);
  EXPECT_DOUBLE_EQ(cosine_scale(attention, 20, 5), 34);
  EXPECT_DOUBLE_EQ(cosine_scale(attention, 20, 10), 64);
  EXPECT_DOUBLE_EQ(cosine_scale(attention, 20, 19), 64);
  attention.scale_warmup = 0;
  EXPECT_DOUBLE_EQ(cosine_scale(attention, 20, 0), 64);
}

TEST(Schedule, CosineScaleLeavesOtherAttentionAlone) {
  AttentionConfig attention;
  attention.scale_warmup = 0.5;
  EXPECT_EQ(cosine_scale(attention, 20, 3), 0);
  attention.kind = AttentionKind::kCosine;
  attention.learn_scale = true;
  EXPECT_EQ(cosine_scale(attention, 20, 3), 0);
}

}  // namespace
}  // namespace gau
