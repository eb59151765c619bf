// exp, sigmoid and swish that compile to vector code inside simple loops.
//
//   exp(x) = 2^n · exp(r),  n = round(x / ln 2),  r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2]
// exp(r) is a Chebyshev fit: degree 6 for float (error 3e-9, so that rounding decides: below 2e-7), 11 for double (below
// 1e-15). No table and no branch, so a loop over elements runs at the vector width; the library's expf does not.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>

namespace gau::cpu {

namespace detail {

template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = std::int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr float kLowest = -87.33654F;  // below: less than the smallest normal number, taken as 0
  static constexpr float kHighest = 88.72283F;  // above: infinity
  static constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  static constexpr float kLn2High = 0.693359375F;
  static constexpr float kLn2Low = -2.12194440e-4F;
  static constexpr float kPolynomial[] = {1.0F,           1.00000003783F,    0.500000004726F,  0.166664150116F,
                                          0.04166635227F, 0.00837516827989F, 0.00139411607883F};
};

template <>
struct ExpConstants<double> {
  using Bits = std::int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr double kLowest = -708.396418532264;
  static constexpr double kHighest = 709.782712893384;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr double kLn2High = 0.693147180369123816490;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kPolynomial[] = {1.0,
                                           1.0,
                                           0.500000000000001848,
                                           0.166666666666666809,
                                           0.0416666666664873796,
                                           0.00833333333331954556,
                                           0.00138888889525054065,
                                           0.00019841269890193706,
                                           2.48014852783700626e-5,
                                           2.75572407617392593e-6,
                                           2.76327150716322541e-7,
                                           2.51100956118862372e-8};
};

}  // namespace detail

/// e^x: 0 below the smallest normal number, infinity above the largest, NaN for NaN.
template <class T>
inline T vexp(T x) {
  using Constants = detail::ExpConstants<T>;
  using Bits = typename Constants::Bits;
  constexpr T kLog2E = T(1.44269504088896340736);
  const T shifted = x * kLog2E + Constants::kRound;
  const T n = shifted - Constants::kRound;
  const T r = (x - n * Constants::kLn2High) - n * Constants::kLn2Low;
  T sum = 0;
#pragma GCC unroll 16
  for (int i = static_cast<int>(std::size(Constants::kPolynomial)) - 1; i >= 0; --i) sum = sum * r + Constants::kPolynomial[i];
  // 2^n goes into the exponent directly: sum lies around 1, so the result is in range exactly where exp(x) is.
  const auto exponent = static_cast<Bits>(std::bit_cast<std::make_unsigned_t<Bits>>(shifted) << Constants::kMantissaBits);
  const T scaled = std::bit_cast<T>(
      static_cast<Bits>(std::bit_cast<std::make_unsigned_t<Bits>>(sum) + static_cast<std::make_unsigned_t<Bits>>(exponent)));
  const T low = x < Constants::kLowest ? T(0) : scaled;
  const T high = x > Constants::kHighest ? std::numeric_limits<T>::infinity() : low;
  return x == x ? high : x;
}

/// 1 / (1 + e^-x), without NaN for any finite x.
template <class T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + vexp(-x));
}

/// x · sigmoid(x).
template <class T>
inline T swish(T x) {
  return x / (T(1) + vexp(-x));
}

/// d swish / dx = s (1 + x (1 - s)), s = sigmoid(x).
template <class T>
inline T swish_slope(T x) {
  const T s = sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

}  // namespace gau::cpu
