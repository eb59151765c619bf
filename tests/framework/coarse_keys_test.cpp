// Logits that choose keys are off by no more than they say.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/cpu/key_search.h"
#include "framework/random.h"

namespace gau::cpu {
namespace {

constexpr std::int64_t kSequences = 2, kLength = 100;

// What makes bytes coarse: numbers of very different size, in one vector and between vectors.
template <class T>
T number(std::uint32_t n, std::int64_t column, std::uint64_t seed, int kind) {
  const auto bits = RandomKey{seed, 0, Site::kSynthetic, 0}.draw(n, 0, 0);
  const double x = bits[0] / 4294967296.0 - 0.5;
  if (kind == 1 && column == 3) return static_cast<T>(300 * x);
  if (kind == 2) return static_cast<T>(x * std::exp2(static_cast<double>(bits[1] % 40) - 20));
  if (kind == 3) return 0;
  return static_cast<T>(x);
}

template <class T>
Tensor vectors(std::int64_t rows, std::int64_t width, std::uint64_t seed, int kind) {
  Tensor x = Tensor::empty({kSequences, rows, width}, DTypeOf<T>::value);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<T>()[i] = number<T>(static_cast<std::uint32_t>(i), i % width, seed, kind);
  return x;
}

template <class Keys>
struct NumberOf {
  using Type = float;
};
template <class T>
struct NumberOf<PackedKeys<T>> {
  using Type = T;
};

template <class Keys>
class CoarseKeysTest : public ::testing::Test {
 public:
  using T = typename NumberOf<Keys>::Type;

  // The largest error as a share of what is claimed, and the claim as a share of |q| |k|.
  void measure(std::int64_t width, int query_kind, int key_kind) {
    const Tensor q = vectors<T>(kStripRows, width, 1, query_kind), k = vectors<T>(kLength, width, 2, key_kind);
    const Keys keys(k);
    ASSERT_TRUE(keys.finite());
    worst = claim = 0;
    for (std::int64_t b = 0; b < kSequences; ++b) {
      typename Keys::Queries strip;
      keys.prepare(q.data<T>() + b * kStripRows * width, kStripRows, strip);
      for (std::int64_t tile = 0; tile < keys.tiles(); ++tile) {
        T out[kStripRows * Keys::kTileKeys];
        keys.multiply(b, tile, strip, out);
        for (std::int64_t n = 0; n < kStripRows * Keys::kTileKeys; ++n) {
          const std::int64_t r = n / Keys::kTileKeys, j = tile * Keys::kTileKeys + n % Keys::kTileKeys;
          if (j >= kLength) {
            ASSERT_EQ(out[n], 0);
            continue;
          }
          double exact = 0, qq = 0, kk = 0;
          for (std::int64_t d = 0; d < width; ++d) {
            const double x = q.data<T>()[(b * kStripRows + r) * width + d], y = k.data<T>()[(b * kLength + j) * width + d];
            exact += x * y;
            qq += x * x;
            kk += y * y;
          }
          const double error = std::abs(static_cast<double>(out[n]) - exact), bound = strip.error[r];
          ASSERT_LE(error, bound) << "row " << r << " key " << j;
          if (bound > 0) worst = std::max(worst, error / bound);
          claim = std::max(claim, qq * kk > 0 ? bound / std::sqrt(qq * kk) : 0);
        }
      }
    }
  }

  double worst = 0, claim = 0;
};

#if defined(__AVX512VNNI__)
using AllKeys = ::testing::Types<PackedKeys<float>, PackedKeys<double>, ByteKeys>;
#else
using AllKeys = ::testing::Types<PackedKeys<float>, PackedKeys<double>>;
#endif
TYPED_TEST_SUITE(CoarseKeysTest, AllKeys);

TYPED_TEST(CoarseKeysTest, ErrorIsWithinTheBound) {
  for (const std::int64_t width : {1, 3, 8, 17, 64, 128}) {
    for (int query_kind = 0; query_kind < 4; ++query_kind) {
      for (int key_kind = 0; key_kind < 4; ++key_kind) this->measure(width, query_kind, key_kind);
    }
  }
}

// A bound that is too wide keeps everything.
TYPED_TEST(CoarseKeysTest, BoundIsOfUse) {
  this->measure(128, 0, 0);
  EXPECT_LT(this->claim, 0.05);
}

TYPED_TEST(CoarseKeysTest, WhatIsNotFiniteIsTold) {
  using Number = typename TestFixture::T;
  for (const Number bad : {std::numeric_limits<Number>::quiet_NaN(), std::numeric_limits<Number>::infinity()}) {
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{16 * 70 + 5}, 16 * kLength + 3}) {
      Tensor k = vectors<Number>(kLength, 16, 2, 0);
      k.template data<Number>()[at] = bad;
      EXPECT_FALSE(TypeParam(k).finite());
    }
    const TypeParam keys(vectors<Number>(kLength, 16, 2, 0));
    Tensor q = vectors<Number>(kStripRows, 16, 1, 0);
    q.template data<Number>()[2 * 16 + 7] = bad;
    typename TypeParam::Queries strip;
    keys.prepare(q.template data<Number>(), kStripRows, strip);
    EXPECT_FALSE(std::isfinite(strip.error[2]));
    EXPECT_TRUE(std::isfinite(strip.error[1]));
  }
}

}  // namespace
}  // namespace gau::cpu
