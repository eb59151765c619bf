// exp and what is made of it, over the whole range of both types.
#include "framework/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace gau::cpu {
namespace {

template <class T>
void expect_exp_accurate(double low, double high, double tolerance) {
  constexpr int n = 200'000;
  for (int i = 0; i <= n; ++i) {
    const T x = static_cast<T>(low + (high - low) * i / n);
    const long double exact = std::exp(static_cast<long double>(x));
    const long double error = std::abs(static_cast<long double>(vexp(x)) / exact - 1);
    ASSERT_LE(error, tolerance) << "at " << x;
  }
}

TEST(VectorMath, ExpIsAccurate) {
  expect_exp_accurate<float>(-87.33, 88.72, 2e-7);
  expect_exp_accurate<float>(-1, 1, 2e-7);
  expect_exp_accurate<double>(-708.3, 709.78, 1e-15);
  expect_exp_accurate<double>(-1, 1, 1e-15);
}

template <class T>
void expect_extremes() {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  EXPECT_EQ(vexp(T(0)), 1);
  EXPECT_EQ(vexp(T(-1e10)), 0);
  EXPECT_EQ(vexp(-infinity), 0);
  EXPECT_EQ(vexp(-std::numeric_limits<T>::max()), 0);
  EXPECT_EQ(vexp(infinity), infinity);
  EXPECT_EQ(vexp(T(1e10)), infinity);
  EXPECT_EQ(vexp(std::numeric_limits<T>::max()), infinity);
  EXPECT_TRUE(std::isnan(vexp(std::numeric_limits<T>::quiet_NaN())));
  for (const T x : {T(1e30), T(1e4), T(800), T(90)}) {
    EXPECT_EQ(sigmoid(x), 1);
    EXPECT_LT(sigmoid(-x), 1e-38);
    EXPECT_EQ(swish(x), x);
    EXPECT_NEAR(swish(-x), 0, 1e-35);
    EXPECT_EQ(swish_slope(x), 1);
    EXPECT_NEAR(swish_slope(-x), 0, 1e-35);
  }
}

TEST(VectorMath, Extremes) {
  expect_extremes<float>();
  expect_extremes<double>();
  // A NaN with low bits set, as arithmetic on other NaNs may leave.
  EXPECT_TRUE(std::isnan(vexp(std::bit_cast<float>(0x7FC00001U))));
  EXPECT_TRUE(std::isnan(vexp(std::bit_cast<double>(0x7FF8000000000001U))));
}

TEST(VectorMath, ExpNeverFalls) {
  float before = 0;
  for (float x = -88; x < 89; x += 1e-3F) {
    const float value = vexp(x);
    ASSERT_GE(value, before) << x;
    before = value;
  }
}

}  // namespace
}  // namespace gau::cpu
