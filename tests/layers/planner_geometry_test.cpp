// Plans against definitions of the methods written again here, pair by pair: who sees whom, and at which relative position.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "planner_helpers.h"

namespace gau {
namespace {

double rope_frequency(std::int64_t pair) { return std::pow(10000.0, -2.0 * static_cast<double>(pair) / kKeySize); }

// A method by its definition: whether i sees j, and their relative position.
struct Definition {
  std::function<bool(std::int64_t, std::int64_t)> visible = [](std::int64_t, std::int64_t) { return true; };
  std::function<double(std::int64_t, std::int64_t)> relative = [](std::int64_t i, std::int64_t j) {
    return static_cast<double>(i - j);
  };
  std::function<double(std::int64_t)> frequency = rope_frequency;
  double magnitude = 1;
};

void expect_plan(const AttentionPlan& plan, const Definition& definition, std::int64_t length, const std::string& name) {
  int wrong = 0;
  for (std::int64_t i = 0; i < length && wrong < 3; ++i) {
    for (std::int64_t j = 0; j < length && wrong < 3; ++j) {
      const bool visible = definition.visible(i, j);
      if (plan.visible(i, j) != visible) {
        ADD_FAILURE() << name << ": visibility of (" << i << ", " << j << ") at length " << length;
        ++wrong;
      }
      if (!visible) continue;
      for (std::int64_t pair = 0; pair < kKeySize / 2; ++pair) {
        const double angle = definition.relative(i, j) * definition.frequency(pair);
        const double size = definition.magnitude * definition.magnitude;
        const Phase phase = phase_of(plan, i, j, pair);
        if (std::abs(phase.cos - size * std::cos(angle)) > 1e-11 || std::abs(phase.sin - size * std::sin(angle)) > 1e-11) {
          ADD_FAILURE() << name << ": phase of (" << i << ", " << j << "), pair " << pair << ", at length " << length;
          ++wrong;
          break;
        }
      }
    }
  }
}

auto within(std::int64_t w) {
  return [w](std::int64_t i, std::int64_t j) { return std::abs(i - j) <= w; };
}
auto arrow(std::int64_t w, std::int64_t sinks, std::int64_t rows) {
  return [=](std::int64_t i, std::int64_t j) { return std::abs(i - j) <= w || j < sinks || i < rows; };
}
// Δ up to the limit, then ±distance.
auto capped(std::int64_t first_far, double distance) {
  return [=](std::int64_t i, std::int64_t j) {
    const std::int64_t delta = i - j;
    if (std::abs(delta) < first_far) return static_cast<double>(delta);
    return delta > 0 ? distance : -distance;
  };
}
auto leaky(double w, double k) {
  return [=](std::int64_t i, std::int64_t j) {
    const double delta = static_cast<double>(i - j);
    const double size = std::abs(delta) < w ? std::abs(delta) : w + (std::abs(delta) - w) / k;
    return delta < 0 ? -size : size;
  };
}
// Distances counted over what is there: on the left, over the keys that the row sees; on the right, for a row that sees all,
// over the rows that see the key.
auto counted(std::int64_t w, std::int64_t sinks, std::int64_t rows) {
  return [=](std::int64_t i, std::int64_t j) {
    const auto sees = arrow(w, sinks, rows);
    double count = 0;
    if (j < i) {
      for (std::int64_t key = j + 1; key <= i; ++key) count += sees(i, key) ? 1 : 0;
      return count;
    }
    for (std::int64_t row = i; row < j; ++row) count += sees(row, j) ? 1 : 0;
    return i < rows ? -count : static_cast<double>(i - j);
  };
}

TEST(PlannerGeometry, MethodsAreTheirDefinitions) {
  for (const std::int64_t length : {1, 2, 7, 16, 17, 24, 40}) {
    const auto check = [length](const std::string& name, const Definition& definition) {
      expect_plan(plan_of(name, length), definition, length, name);
    };
    check("rope", {});
    check("window", {.visible = within(15)});
    check("window:w=4", {.visible = within(4)});
    check("rerope", {.relative = capped(8, 8)});
    check("rerope:w=8;clamp=7", {.relative = capped(8, 7)});
    check("rerope:w=3", {.relative = capped(3, 3)});
    const double default_k = length > kTrain ? static_cast<double>(length - 8) / (kTrain - 1 - 8) : 1;
    check("leaky-rerope", {.relative = leaky(8, default_k)});
    check("leaky-rerope:w=4;k=3", {.relative = leaky(4, 3)});
    check("lm-infinite", {.visible = arrow(16, 10, 0), .relative = capped(17, 16)});
    check("lm-infinite:window=7;sinks=5;rows=5;clamp=7", {.visible = arrow(7, 5, 5), .relative = capped(8, 7)});
    check("streaming:positions=absolute", {.visible = arrow(5, 4, 0)});
    check("streaming:window=7;sinks=4;rows=4;positions=absolute", {.visible = arrow(7, 4, 4)});
    check("streaming", {.visible = arrow(5, 4, 0), .relative = counted(5, 4, 0)});
    check("streaming:window=3;sinks=2;rows=3", {.visible = arrow(3, 2, 3), .relative = counted(3, 2, 3)});
    check("streaming:window=2;sinks=6;rows=4", {.visible = arrow(2, 6, 4), .relative = counted(2, 6, 4)});
    check("streaming:window=2;sinks=6", {.visible = arrow(2, 6, 0), .relative = counted(2, 6, 0)});
    check("streaming:window=2;sinks=1;rows=9", {.visible = arrow(2, 1, 9), .relative = counted(2, 1, 9)});
    check("pose", {});
    check("random", {});
  }
}

TEST(PlannerGeometry, StretchingMethodsScaleTheirFrequencies) {
  for (const std::int64_t length : {8, 16, 40}) {
    const double s = std::max(1.0, static_cast<double>(length) / kTrain);
    Definition pi;
    pi.relative = [s](std::int64_t i, std::int64_t j) { return static_cast<double>(i - j) / s; };
    expect_plan(plan_of("pi", length), pi, length, "pi");
    Definition ntk;
    ntk.frequency = [s](std::int64_t pair) {
      return std::pow(10000 * std::pow(s, 8.0 / 6.0), -2.0 * static_cast<double>(pair) / kKeySize);
    };
    expect_plan(plan_of("ntk", length), ntk, length, "ntk");
    Definition yarn;
    // At 16 positions and 4 pairs only the first pair completes a turn: the ramp is 0 there and 1 behind it.
    yarn.frequency = [s](std::int64_t pair) { return rope_frequency(pair) / (pair == 0 ? 1 : s); };
    yarn.magnitude = 0.1 * std::log(s) + 1;
    expect_plan(plan_of("yarn", length), yarn, length, "yarn");
  }
}

TEST(PlannerGeometry, TheNominalLengthStretches) {
  Planner planner(model(), parse_method("pi"), DType::kF64);
  BatchLayout padded = layout(64);
  padded.nominal_length = 32;
  const AttentionPlan plan = planner.plan(0, padded);
  EXPECT_NEAR(plan.near.q.cos.at(kKeySize / 2), std::cos(0.5), 1e-15);
  EXPECT_NEAR(planner.plan(0, layout(64)).near.q.cos.at(kKeySize / 2), std::cos(0.25), 1e-15);
}

TEST(PlannerGeometry, HwfaHasWindowsAndOneFullLayerWithoutRotation) {
  // 2 w · 2 + 1 ≤ 12: w = 2.
  for (const std::int64_t layer : {0, 1}) expect_plan(plan_of("hwfa", 40, layer), {.visible = within(2)}, 40, "hwfa");
  const AttentionPlan last = plan_of("hwfa", 40, 2);
  EXPECT_TRUE(last.sees_all(40));
  EXPECT_FALSE(last.near.q.defined());
}

TEST(PlannerGeometry, Hwfa2HasAFullLayerInTheMiddle) {
  for (const std::int64_t layer : {0, 2}) expect_plan(plan_of("hwfa2", 40, layer), {.visible = within(2)}, 40, "hwfa2");
  expect_plan(plan_of("hwfa2", 16, 1), {}, 16, "hwfa2 within the training length");
  expect_plan(plan_of("hwfa2", 40, 1), {.relative = capped(8, 8)}, 40, "hwfa2 beyond it");
}

TEST(PlannerGeometry, AlibiHasSlopesAndNoRotation) {
  const AttentionPlan plan = plan_of("alibi", 8);
  EXPECT_FALSE(plan.near.q.defined());
  EXPECT_EQ(plan.bias(5, 3), -0.125);
  EXPECT_EQ(plan.bias(3, 5), -0.0625);
  const AttentionPlan symmetric = plan_of("alibi:m=0.00390625", 8);
  EXPECT_EQ(symmetric.bias(0, 4), -0.015625);
  EXPECT_EQ(symmetric.bias(4, 0), -0.015625);
}

TEST(PlannerGeometry, EveryMethodIsRopeWithinItsRangeAndNotBeyond) {
  const std::vector<std::pair<std::string, std::int64_t>> ranges = {
      {"pi", 16},           {"ntk", 16},       {"yarn", 16},      {"rerope", 9},
      {"leaky-rerope", 16}, {"window", 16},    {"streaming", 6},  {"lm-infinite", 17},
      {"rope+logn", 16},    {"rerope:w=5", 6}, {"window:w=4", 5}, {"lm-infinite:window=7;sinks=5;rows=5;clamp=7", 8}};
  for (const auto& [name, range] : ranges) {
    EXPECT_TRUE(same(plan_of(name, range), plan_of("rope", range), range)) << name;
    for (const std::int64_t length : {3 * range, 5 * range}) {
      EXPECT_FALSE(same(plan_of(name, length), plan_of("rope", length), length)) << name;
    }
  }
  for (const std::string name : {"alibi", "hwfa", "rope+softmax-plus"}) {
    EXPECT_FALSE(same(plan_of(name, 16), plan_of("rope", 16), 16)) << name;
  }
  EXPECT_TRUE(same(plan_of("rope+infoscale", 16), plan_of("rope", 16), 16));
  EXPECT_FALSE(same(plan_of("rope+infoscale", 32), plan_of("rope", 32), 32));
}

TEST(PlannerGeometry, FarRegionsThatNoPairReachesAreLeftOut) {
  const std::vector<std::pair<std::string, std::int64_t>> lengths = {
      {"rerope", 8}, {"leaky-rerope", 16}, {"streaming", 6}, {"lm-infinite", 17}, {"streaming:window=3;sinks=0", 40},
      {"hwfa2", 16}};
  for (const auto& [name, length] : lengths) EXPECT_FALSE(plan_of(name, length, 1).has_far()) << name;
  EXPECT_TRUE(plan_of("rerope", 9).has_far());
  EXPECT_TRUE(plan_of("leaky-rerope", 17).has_far());
  EXPECT_TRUE(plan_of("streaming", 7).has_far());
  EXPECT_TRUE(plan_of("lm-infinite", 18).has_far());
}

TEST(PlannerGeometry, NearAndFarAgreeAtTheEdgeOfRerope) {
  const AttentionPlan plan = plan_of("rerope:w=6", 20);
  for (std::int64_t pair = 0; pair < kKeySize / 2; ++pair) {
    for (const std::int64_t side : {-1, 1}) {
      const Phase far = phase_of(plan, 10, 10 - 6 * side, pair);
      const double angle = 6.0 * static_cast<double>(side) * rope_frequency(pair);
      EXPECT_NEAR(far.cos, std::cos(angle), 1e-13);
      EXPECT_NEAR(far.sin, std::sin(angle), 1e-13);
    }
  }
}

}  // namespace
}  // namespace gau
