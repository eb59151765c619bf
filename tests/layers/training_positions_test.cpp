// Positions of PoSE and of randomised positions.
#include "layers/training_positions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "framework/error.h"

namespace gau {
namespace {

PositionTerm term(const char* text) { return parse_position(text); }

TEST(TrainingPositions, PoseSkipsOnceAfterTheFirstChunk) {
  std::set<std::int64_t> firsts;
  std::set<std::int64_t> skips;
  for (std::uint64_t sample = 0; sample < 400; ++sample) {
    const std::vector<double> positions = training_positions(term("pose:target=32"), 7, 1, sample, 16);
    ASSERT_EQ(positions.size(), 16U);
    const PoseSplit split = pose_split(32, 7, 1, sample, 16);
    firsts.insert(split.first);
    skips.insert(split.skip);
    for (std::int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(positions[static_cast<std::size_t>(i)], static_cast<double>(i < split.first ? i : i + split.skip));
    }
  }
  // Every first chunk of 1 … 8 tokens and every skip of 0 … 16 comes up, and no other.
  EXPECT_EQ(firsts.size(), 8U);
  EXPECT_EQ(*firsts.begin(), 1);
  EXPECT_EQ(*firsts.rbegin(), 8);
  EXPECT_EQ(skips.size(), 17U);
  EXPECT_EQ(*skips.begin(), 0);
  EXPECT_EQ(*skips.rbegin(), 16);
}

TEST(TrainingPositions, RandomOnesAreDistinctSortedAndUniform) {
  std::vector<int> hits(40, 0);
  constexpr int kSamples = 4000;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    const std::vector<double> positions = training_positions(term("random:target=40"), 3, 0, sample, 10);
    ASSERT_EQ(positions.size(), 10U);
    for (std::size_t i = 0; i < 10; ++i) {
      if (i > 0) {
        ASSERT_LT(positions[i - 1], positions[i]);
      }
      ASSERT_GE(positions[i], 0);
      ASSERT_LT(positions[i], 40);
      ++hits[static_cast<std::size_t>(positions[i])];
    }
  }
  // Each position is taken with probability 1/4: 5 standard deviations of a binomial.
  const double expected = kSamples * 0.25;
  for (const int count : hits) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected * 0.75));
}

TEST(TrainingPositions, DependOnSeedEpochAndSampleAlone) {
  for (const char* text : {"pose:target=4096", "random:target=4096"}) {
    const std::vector<double> positions = training_positions(term(text), 1, 2, 3, 64);
    EXPECT_EQ(positions, training_positions(term(text), 1, 2, 3, 64));
    EXPECT_NE(positions, training_positions(term(text), 9, 2, 3, 64));
    EXPECT_NE(positions, training_positions(term(text), 1, 9, 3, 64));
    EXPECT_NE(positions, training_positions(term(text), 1, 2, 9, 64));
    EXPECT_NE(positions, training_positions(term(text), 1, 2, 3 + (std::uint64_t{1} << 32), 64));
  }
}

TEST(TrainingPositions, OtherTermsCount) {
  EXPECT_EQ(training_positions(term("rope"), 1, 2, 3, 4), (std::vector<double>{0, 1, 2, 3}));
}

TEST(TrainingPositions, ShortSamplesAndTargetsOfTheirLengthWork) {
  EXPECT_EQ(training_positions(term("pose:target=1"), 1, 2, 3, 1), (std::vector<double>{0}));
  EXPECT_EQ(training_positions(term("random:target=3"), 1, 2, 3, 3), (std::vector<double>{0, 1, 2}));
  EXPECT_THROW(training_positions(term("pose:target=3"), 1, 2, 3, 4), Error);
  EXPECT_THROW(training_positions(term("random"), 1, 2, 3, 4), Error);
}

}  // namespace
}  // namespace gau
