// Temperature laws against published figures and against their formulas.
#include "layers/temperature.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/error.h"

namespace gau {
namespace {

LawTerm law(const char* text) { return parse_law(text); }

TEST(Temperature, InfoScaleGivesTheKnownFactors) {
  const double for_128[] = {1, 1.0772, 1.1485, 1.2150, 1.2773, 1.3361, 1.3918};
  const double for_64[] = {1, 1.0744, 1.1426, 1.2055, 1.2641, 1.3189, 1.3704};
  std::int64_t length = 64;
  for (int n = 0; n < 7; ++n, length *= 2) {
    // The figures are rounded to four places.
    EXPECT_NEAR(temperature(law("infoscale"), length, 64, 128), for_128[n], 0.51e-4) << length;
    EXPECT_NEAR(temperature(law("infoscale"), length, 64, 64), for_64[n], 0.51e-4) << length;
  }
}

TEST(Temperature, InfoScaleIsItsFormula) {
  for (const double d : {2.0, 16.0, 64.0, 128.0}) {
    for (const double train : {2.0, 8.0, 64.0, 512.0}) {
      for (const double l : {1.0, 2.0, 7.0, 64.0, 4096.0, 1e6}) {
        const double expected = std::sqrt(1 - std::pow(l, -2 / d)) / std::sqrt(1 - std::pow(train, -2 / d));
        const double actual = temperature(law("infoscale"), static_cast<std::int64_t>(l), static_cast<std::int64_t>(train),
                                          static_cast<std::int64_t>(d));
        EXPECT_NEAR(actual, expected, 1e-12 * std::max(1.0, expected)) << d << " " << train << " " << l;
      }
    }
  }
}

TEST(Temperature, InfoScaleIsClippedOnlyWhenAsked) {
  EXPECT_LT(temperature(law("infoscale"), 8, 64, 128), 1);
  EXPECT_EQ(temperature(law("infoscale:clip=1"), 8, 64, 128), 1);
  EXPECT_GT(temperature(law("infoscale:clip=1"), 128, 64, 128), 1);
}

TEST(Temperature, LogNIsClippedUnlessToldOtherwise) {
  EXPECT_NEAR(temperature(law("logn"), 4096, 64, 128), 2, 1e-14);
  EXPECT_EQ(temperature(law("logn"), 8, 64, 128), 1);
  EXPECT_NEAR(temperature(law("logn:clip=0"), 8, 64, 128), 0.5, 1e-14);
}

TEST(Temperature, SoftmaxPlusHasAFloorAndABase) {
  EXPECT_NEAR(temperature(law("softmax_plus"), 512, 64, 128), 1, 1e-14);
  EXPECT_NEAR(temperature(law("softmax-plus"), 4, 64, 128), std::log(16.0) / std::log(512.0), 1e-14);
  EXPECT_NEAR(temperature(law("softmax-plus:base=64"), 4096, 0, 128), 2, 1e-14);
}

TEST(Temperature, SsmaxIsTheLogarithmAndNoneIsOne) {
  EXPECT_NEAR(temperature(law("ssmax"), 64, 0, 128), std::log(64.0), 1e-14);
  EXPECT_EQ(temperature(law("none"), 4096, 0, 128), 1);
}

TEST(Temperature, TheLawsOwnTrainingLengthCounts) {
  EXPECT_EQ(temperature(law("infoscale:train=8"), 8, 64, 16), 1);
  EXPECT_NEAR(temperature(law("logn:train=8"), 64, 1000, 16), 2, 1e-14);
}

TEST(Temperature, NoKeysGiveOneAndOneKeyIsFinite) {
  for (const char* name : {"none", "softmax-plus", "infoscale", "logn", "logn:clip=0", "ssmax"}) {
    EXPECT_EQ(temperature(law(name), 0, 64, 128), 1) << name;
    EXPECT_TRUE(std::isfinite(temperature(law(name), 1, 64, 128))) << name;
  }
}

TEST(Temperature, RefusesATrainingLengthThatIsMissingOrOne) {
  for (const char* name : {"infoscale", "logn"}) {
    for (const std::int64_t train : {0, 1}) {
      try {
        temperature(law(name), 64, train, 128);
        FAIL() << name << " " << train;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
        EXPECT_NE(std::string(error.what()).find("training length"), std::string::npos) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace gau
