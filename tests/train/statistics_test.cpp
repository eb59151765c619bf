// Intervals against known answers: tables of t, intervals by hand, and how often an interval covers the truth.
#include "train/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace gau {
namespace {

struct TableRow {
  double probability, degrees, t;
};

TEST(StudentQuantile, AgreesWithTables) {
  for (const TableRow& row : std::vector<TableRow>{{0.975, 1, 12.7062047362},
                                                   {0.975, 2, 4.3026527297},
                                                   {0.975, 5, 2.5705818356},
                                                   {0.975, 10, 2.2281388520},
                                                   {0.975, 18, 2.1009220402},
                                                   {0.975, 100, 1.9839715185},
                                                   {0.95, 4, 2.1318467863},
                                                   {0.995, 3, 5.8409093097},
                                                   {0.025, 10, -2.2281388520}}) {
    EXPECT_NEAR(student_quantile(row.probability, row.degrees), row.t, 1e-9) << row.probability << " " << row.degrees;
  }
  EXPECT_NEAR(student_quantile(0.5, 7), 0, 1e-12);
}

TEST(IncompleteBeta, AgreesWithClosedForms) {
  for (double x : {0.0, 0.1, 0.3, 0.5, 0.9, 1.0}) {
    EXPECT_NEAR(incomplete_beta(1, 1, x), x, 1e-14);
    EXPECT_NEAR(incomplete_beta(2, 1, x), x * x, 1e-14);
    EXPECT_NEAR(incomplete_beta(0.5, 0.5, x), 2 / M_PI * std::asin(std::sqrt(x)), 1e-13);
  }
}

TEST(StudentRatio, EqualCountsGiveTheIntervalOfTheUnitMeans) {
  // Means 1, 2, 3, 4, 5: mean 3, standard error sqrt(2.5 / 5), t(0.975, 4) = 2.7764451.
  const std::vector<double> sums{10, 20, 30, 40, 50};
  const std::vector<double> counts(5, 10.0);
  const Interval interval = student_ratio(sums, counts);
  EXPECT_DOUBLE_EQ(interval.value, 3);
  EXPECT_NEAR(interval.low, 3 - 2.7764451052 * std::sqrt(0.5), 1e-8);
  EXPECT_NEAR(interval.high, 3 + 2.7764451052 * std::sqrt(0.5), 1e-8);
}

TEST(RatioInterval, WeighsTargetsNotUnits) {
  const std::vector<double> sums{1, 99};
  const std::vector<double> counts{1, 9};
  EXPECT_DOUBLE_EQ(student_ratio(sums, counts).value, 10);
  EXPECT_DOUBLE_EQ(bootstrap_ratio(sums, counts, 1).value, 10);
}

TEST(RatioInterval, OneUnitOrInfinityHasNoInterval) {
  const std::vector<double> one{3};
  const std::vector<double> count{2};
  EXPECT_DOUBLE_EQ(ratio_interval(one, count, 0).value, 1.5);
  EXPECT_TRUE(std::isnan(ratio_interval(one, count, 0).low));
  std::vector<double> many(30, 1.0);
  const std::vector<double> counts(30, 1.0);
  many[7] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(ratio_interval(many, counts, 0).value));
  EXPECT_TRUE(std::isnan(ratio_interval(many, counts, 0).high));
}

TEST(BootstrapRatio, ClosedFormOfAMeanAndSameSeedSameBits) {
  // 400 units of count 1: the bootstrap's standard error is that of the mean, sd / sqrt(n).
  std::mt19937_64 generator(3);
  std::normal_distribution<double> normal(5, 2);
  std::vector<double> values(400);
  const std::vector<double> counts(400, 1.0);
  double squares = 0;
  for (double& v : values) v = normal(generator);
  const Interval interval = bootstrap_ratio(values, counts, 11);
  for (double v : values) squares += (v - interval.value) * (v - interval.value);
  const double reach = 1.959964 * std::sqrt(squares / 400 / 400);
  EXPECT_NEAR(interval.high - interval.value, reach, 0.1 * reach);
  EXPECT_NEAR(interval.value - interval.low, reach, 0.1 * reach);
  const Interval again = bootstrap_ratio(values, counts, 11);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_EQ(interval.high, again.high);
  EXPECT_NE(interval.low, bootstrap_ratio(values, counts, 12).low);
}

/// How often the interval holds the true ratio 2 over `trials` samples of units with unequal counts and their own means.
double coverage(std::size_t units, int trials) {
  std::mt19937_64 generator(units);
  std::normal_distribution<double> effect(2, 0.5);
  std::uniform_int_distribution<int> size(1, 20);
  int covered = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> sums(units);
    std::vector<double> counts(units);
    for (std::size_t u = 0; u < units; ++u) {
      counts[u] = size(generator);
      sums[u] = counts[u] * effect(generator);
    }
    const Interval interval = ratio_interval(sums, counts, static_cast<std::uint64_t>(trial));
    covered += interval.low <= 2 && 2 <= interval.high;
  }
  return static_cast<double>(covered) / trials;
}

TEST(RatioInterval, CoversTheTruthAboutNineteenTimesOutOfTwenty) {
  EXPECT_NEAR(coverage(60, 300), 0.95, 0.045);
  EXPECT_NEAR(coverage(8, 1000), 0.95, 0.045);
}

TEST(IntervalLabel, SaysWhatWasDone) {
  EXPECT_EQ(interval_label(UnitKind::kDocuments, 20), "bootstrap over documents");
  EXPECT_EQ(interval_label(UnitKind::kBlocks, 20), "bootstrap over blocks");
  EXPECT_EQ(interval_label(UnitKind::kBlocks, 19), "t over blocks");
}

}  // namespace
}  // namespace gau
