// Plans against definitions of the methods written again here, pair by pair: who sees whom, and at which relative position.
#include "layers/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

constexpr std::int64_t kTrain = 16;
constexpr std::int64_t kKeySize = 8;

ModelConfig model(std::int64_t layers = 3) {
  ModelConfig config;
  config.layers = layers;
  config.key_size = kKeySize;
  config.vocab_size = 100;
  config.attention.train_length = kTrain;
  return config;
}

BatchLayout layout(std::int64_t length, std::int64_t batch = 1) {
  BatchLayout result;
  result.batch = batch;
  result.length = length;
  return result;
}

AttentionPlan plan_of(const std::string& entry, std::int64_t length, std::int64_t layer = 0,
                      const ModelConfig& config = model()) {
  return Planner(config, parse_method(entry), DType::kF64).plan(layer, layout(length));
}

struct Phase {
  double cos = 1;
  double sin = 0;
};

Phase entry_of(const RotaryTable& table, std::int64_t position, std::int64_t pair) {
  if (!table.defined()) return {};
  const std::int64_t row = table.cos.dim(0) == 1 ? 0 : position;
  return {table.cos.at(row * kKeySize / 2 + pair), table.sin.at(row * kKeySize / 2 + pair)};
}

// Cosine and sine of the angle between q at i and k at j, as the tables of their region make it.
Phase phase_of(const AttentionPlan& plan, std::int64_t i, std::int64_t j, std::int64_t pair) {
  const Region region = plan.region(i, j);
  const RegionRotation& rotation = region == Region::kNear ? plan.near : region == Region::kLeft ? plan.left : plan.right;
  const Phase q = entry_of(rotation.q, i, pair);
  const Phase k = entry_of(rotation.k, j, pair);
  return {q.cos * k.cos + q.sin * k.sin, q.sin * k.cos - q.cos * k.sin};
}

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

TEST(Planner, MethodsAreTheirDefinitions) {
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

TEST(Planner, StretchingMethodsScaleTheirFrequencies) {
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

TEST(Planner, TheNominalLengthStretches) {
  Planner planner(model(), parse_method("pi"), DType::kF64);
  BatchLayout padded = layout(64);
  padded.nominal_length = 32;
  const AttentionPlan plan = planner.plan(0, padded);
  EXPECT_NEAR(plan.near.q.cos.at(kKeySize / 2), std::cos(0.5), 1e-15);
  EXPECT_NEAR(planner.plan(0, layout(64)).near.q.cos.at(kKeySize / 2), std::cos(0.25), 1e-15);
}

TEST(Planner, HwfaHasWindowsAndOneFullLayerWithoutRotation) {
  // 2 w · 2 + 1 ≤ 12: w = 2.
  for (const std::int64_t layer : {0, 1}) expect_plan(plan_of("hwfa", 40, layer), {.visible = within(2)}, 40, "hwfa");
  const AttentionPlan last = plan_of("hwfa", 40, 2);
  EXPECT_TRUE(last.sees_all(40));
  EXPECT_FALSE(last.near.q.defined());
}

TEST(Planner, Hwfa2HasAFullLayerInTheMiddle) {
  for (const std::int64_t layer : {0, 2}) expect_plan(plan_of("hwfa2", 40, layer), {.visible = within(2)}, 40, "hwfa2");
  expect_plan(plan_of("hwfa2", 16, 1), {}, 16, "hwfa2 within the training length");
  expect_plan(plan_of("hwfa2", 40, 1), {.relative = capped(8, 8)}, 40, "hwfa2 beyond it");
}

TEST(Planner, AlibiHasSlopesAndNoRotation) {
  const AttentionPlan plan = plan_of("alibi", 8);
  EXPECT_FALSE(plan.near.q.defined());
  EXPECT_EQ(plan.bias(5, 3), -0.125);
  EXPECT_EQ(plan.bias(3, 5), -0.0625);
  const AttentionPlan symmetric = plan_of("alibi:m=0.00390625", 8);
  EXPECT_EQ(symmetric.bias(0, 4), -0.015625);
  EXPECT_EQ(symmetric.bias(4, 0), -0.015625);
}

// Whether two plans give every pair the same visibility, phase and bias, and every row the same factor.
bool same(const AttentionPlan& a, const AttentionPlan& b, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i) {
    if (std::abs(a.row_factor.at(i) - b.row_factor.at(i)) > 1e-12) return false;
    for (std::int64_t j = 0; j < length; ++j) {
      if (a.visible(i, j) != b.visible(i, j) || a.bias(i, j) != b.bias(i, j)) return false;
      if (!a.visible(i, j)) continue;
      for (std::int64_t pair = 0; pair < kKeySize / 2; ++pair) {
        const Phase p = phase_of(a, i, j, pair);
        const Phase q = phase_of(b, i, j, pair);
        if (std::abs(p.cos - q.cos) > 1e-11 || std::abs(p.sin - q.sin) > 1e-11) return false;
      }
    }
  }
  return true;
}

TEST(Planner, EveryMethodIsRopeWithinItsRangeAndNotBeyond) {
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

TEST(Planner, FarRegionsThatNoPairReachesAreLeftOut) {
  const std::vector<std::pair<std::string, std::int64_t>> lengths = {
      {"rerope", 8}, {"leaky-rerope", 16}, {"streaming", 6}, {"lm-infinite", 17}, {"streaming:window=3;sinks=0", 40},
      {"hwfa2", 16}};
  for (const auto& [name, length] : lengths) EXPECT_FALSE(plan_of(name, length, 1).has_far()) << name;
  EXPECT_TRUE(plan_of("rerope", 9).has_far());
  EXPECT_TRUE(plan_of("leaky-rerope", 17).has_far());
  EXPECT_TRUE(plan_of("streaming", 7).has_far());
  EXPECT_TRUE(plan_of("lm-infinite", 18).has_far());
}

TEST(Planner, NearAndFarAgreeAtTheEdgeOfRerope) {
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

}  // namespace
}  // namespace gau
