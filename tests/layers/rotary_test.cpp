// Rotary tables against a reference and against what defines each way to stretch them.
#include "layers/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "golden_rotations.h"

namespace gau {
namespace {

TEST(Rotary, TablesAreThoseOfTheReference) {
  for (const GoldenRotation& golden : kGoldenRotations) {
    const Spectrum spectrum =
        golden.method == "pi" ? pi_spectrum(16, golden.factor) : yarn_spectrum(16, golden.train, golden.factor, 32, 1);
    const RotaryTable table =
        rotary_table(std::vector<double>{static_cast<double>(golden.position)}, {1}, spectrum, DType::kF64);
    ASSERT_EQ(table.cos.shape(), (Shape{1, 8}));
    for (int pair = 0; pair < 8; ++pair) {
      EXPECT_NEAR(table.cos.at(pair), golden.cos[static_cast<std::size_t>(pair)], 1e-12)
          << golden.method << " " << golden.position;
      EXPECT_NEAR(table.sin.at(pair), golden.sin[static_cast<std::size_t>(pair)], 1e-12)
          << golden.method << " " << golden.position;
    }
  }
}

TEST(Rotary, NtkInterpolatesTheSlowestPairAndKeepsTheFastest) {
  const Spectrum plain = rope_spectrum(32);
  const Spectrum ntk = ntk_spectrum(32, 8);
  EXPECT_EQ(ntk.frequencies.front(), 1);
  EXPECT_NEAR(ntk.frequencies.back(), plain.frequencies.back() / 8, 1e-16);
  EXPECT_EQ(ntk_spectrum(32, 1).frequencies, plain.frequencies);
}

TEST(Rotary, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  const Spectrum plain = rope_spectrum(64);
  const Spectrum yarn = yarn_spectrum(64, 4096, 4, 32, 1);
  EXPECT_EQ(yarn.frequencies.front(), plain.frequencies.front());
  EXPECT_NEAR(yarn.frequencies.back(), plain.frequencies.back() / 4, 1e-18);
  EXPECT_NEAR(yarn.magnitude, 0.1 * std::log(4.0) + 1, 1e-15);
  for (std::size_t i = 0; i < 32; ++i) {
    const double turns = 4096 * plain.frequencies[i] / 6.283185307179586;
    if (turns > 40) {
      EXPECT_EQ(yarn.frequencies[i], plain.frequencies[i]) << i;
    }
    if (turns < 0.7) {
      EXPECT_NEAR(yarn.frequencies[i], plain.frequencies[i] / 4, 1e-15) << i;
    }
  }
}

TEST(Rotary, YarnIsDefinedForTinyTrainingLengths) {
  for (const double train : {1.0, 2.0, 6.0, 7.0}) {
    const Spectrum yarn = yarn_spectrum(16, train, 4, 32, 1);
    for (const double frequency : yarn.frequencies) EXPECT_TRUE(std::isfinite(frequency)) << train;
    EXPECT_NEAR(yarn.frequencies.back(), rope_spectrum(16).frequencies.back() / 4, 1e-18);
  }
}

TEST(Rotary, FloatTablesAreRoundedFromDouble) {
  const Spectrum spectrum = rope_spectrum(16);
  const std::vector<double> positions = {0, 4095, 65535};
  const RotaryTable exact = rotary_table(positions, {3}, spectrum, DType::kF64);
  const RotaryTable rounded = rotary_table(positions, {3}, spectrum, DType::kF32);
  for (std::int64_t n = 0; n < exact.cos.size(); ++n) {
    EXPECT_EQ(rounded.cos.at(n), static_cast<double>(static_cast<float>(exact.cos.at(n))));
    EXPECT_EQ(rounded.sin.at(n), static_cast<double>(static_cast<float>(exact.sin.at(n))));
  }
}

}  // namespace
}  // namespace gau
