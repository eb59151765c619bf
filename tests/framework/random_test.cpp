// Philox against its published vectors and Random123, the streams made of it, permutations, and dropout's draws.
#include "framework/random.h"

#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "framework/cpu/dropout_row.h"
#include "framework/error.h"

namespace gau {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswers) {
  // kat_vectors of Random123, philox4x32 with 10 rounds.
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, ~std::uint64_t{0}), (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Philox, EqualsRandom123) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint32_t x = i * 0x9E3779B9;
    const r123::Philox4x32::ctr_type counter{{x, ~x, i, x >> 3}};
    const r123::Philox4x32::key_type key{{x * 3, i + 7}};
    const auto expected = r123::Philox4x32()(counter, key);
    const Words actual = philox({x, ~x, i, x >> 3}, (std::uint64_t{i + 7} << 32) | (x * 3));
    for (std::size_t word = 0; word < 4; ++word) ASSERT_EQ(actual[word], expected[word]);
  }
}

TEST(RandomKey, EveryPartMatters) {
  const RandomKey base{1, 2, Site::kMask, 3};
  std::set<Words> draws{base.draw(4, 5, 6)};
  draws.insert(RandomKey{2, 2, Site::kMask, 3}.draw(4, 5, 6));
  draws.insert(RandomKey{1, 3, Site::kMask, 3}.draw(4, 5, 6));
  draws.insert(RandomKey{2, 1, Site::kMask, 3}.draw(4, 5, 6));
  draws.insert(RandomKey{1, 2, Site::kShuffle, 3}.draw(4, 5, 6));
  draws.insert(RandomKey{1, 2, Site::kMask, 4}.draw(4, 5, 6));
  draws.insert(base.draw(5, 5, 6));
  draws.insert(base.draw(4, 6, 6));
  draws.insert(base.draw(4, 5, 7));
  EXPECT_EQ(draws.size(), 9U);
  EXPECT_EQ(base.draw(4, 5, 6), base.draw(4, 5, 6));
}

TEST(RandomKey, KeysOfManySeedsAndStepsDiffer) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (std::uint64_t step = 0; step < 100; ++step) keys.insert(RandomKey{seed, step, Site::kMask, 0}.key());
  }
  EXPECT_EQ(keys.size(), 10'000U);
}

TEST(RandomKey, UniformHasMeanAndVariance) {
  const RandomKey key{9, 0, Site::kSynthetic, 0};
  double sum = 0, squares = 0;
  constexpr std::uint32_t n = 100'000;
  for (std::uint32_t i = 0; i < n; ++i) {
    const double value = key.uniform(i, 0, 0);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.005);
}

TEST(RandomKey, BelowIsUniform) {
  const RandomKey key{9, 1, Site::kSynthetic, 0};
  std::vector<int> counts(7, 0);
  for (std::uint32_t i = 0; i < 70'000; ++i) ++counts.at(key.below(7, i, 0, 0));
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  EXPECT_EQ(key.below(1, 3, 0, 0), 0U);
  EXPECT_THROW(key.below(0, 0, 0, 0), Error);
  // The exact product's high half, checked where both halves of n count.
  const std::uint64_t n = 0x123456789ABCDEF1;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const Words words = key.draw(i, 0, 0);
    const auto bits = static_cast<unsigned __int128>((std::uint64_t{words[1]} << 32) | words[0]);
    ASSERT_EQ(key.below(n, i, 0, 0), static_cast<std::uint64_t>((bits * n) >> 64));
  }
}

TEST(Permute, IsABijection) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1000, 4097}) {
    const RandomKey key{n, 1, Site::kShuffle, 0};
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permute(i, n, key);
      ASSERT_LT(image, n);
      ASSERT_FALSE(seen[image]) << n << ": " << i << " and another go to " << image;
      seen[image] = true;
    }
  }
  EXPECT_THROW(permute(5, 5, RandomKey{}), Error);
}

TEST(Permute, DependsOnTheKeyAndMixes) {
  constexpr std::uint64_t n = 1000;
  int fixed = 0, same = 0, neighbours = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t a = permute(i, n, {1, 0, Site::kShuffle, 0});
    fixed += a == i ? 1 : 0;
    same += a == permute(i, n, {1, 1, Site::kShuffle, 0}) ? 1 : 0;
    if (i > 0) {
      const auto gap = static_cast<std::int64_t>(a) - static_cast<std::int64_t>(permute(i - 1, n, {1, 0, Site::kShuffle, 0}));
      neighbours += std::abs(gap) == 1 ? 1 : 0;
    }
  }
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same, 10);
  EXPECT_LT(neighbours, 15);
}

TEST(DropoutBits, AreTheDocumentedDraws) {
  const RandomKey key{3, 14, Site::kHiddenDropout, 5};
  std::array<std::uint16_t, cpu::kDropoutChunk> bits{};
  for (const std::int64_t chunk : {0, 1, 500}) {
    cpu::dropout_bits(key.key(), key.stream(), 77, 31, chunk, bits.data());
    for (std::int64_t i = 0; i < cpu::kDropoutChunk; ++i) {
      const std::int64_t column = chunk * cpu::kDropoutChunk + i;
      const Words words = key.draw(77, 31, static_cast<std::uint32_t>(column / 8));
      const std::uint32_t word = words[static_cast<std::size_t>(column % 8 / 2)];
      ASSERT_EQ(bits[static_cast<std::size_t>(i)], column % 2 == 0 ? word & 0xFFFF : word >> 16) << "column " << column;
    }
  }
}

TEST(DropoutRow, AnyPieceOfARowIsThatPiece) {
  DropoutSpec spec;
  spec.rate = 0.3;
  spec.key = {3, 14, Site::kAttentionDropout, 5};
  constexpr std::int64_t n = 300;
  std::vector<float> whole(n, 1.0F);
  cpu::dropout_row(spec, 8, 9, 0, n, whole.data());
  for (const std::int64_t first : {0, 1, 8, 127, 128, 200}) {
    for (const std::int64_t count : {1, 7, 100}) {
      std::vector<float> part(static_cast<std::size_t>(count), 1.0F);
      cpu::dropout_row(spec, 8, 9, first, count, part.data());
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(part[static_cast<std::size_t>(i)], whole[static_cast<std::size_t>(first + i)]);
      }
    }
  }
}

// How many of the first `count` columns of (sample 0, row 0) fall below the threshold: a draw that equals it is kept.
std::int64_t draws_below(const DropoutSpec& spec, std::int64_t count) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(spec.rate * 65536));
  std::int64_t below = 0;
  for (std::int64_t column = 0; column < count; ++column) {
    const std::uint32_t word =
        spec.key.draw(0, 0, static_cast<std::uint32_t>(column / 8))[static_cast<std::size_t>(column % 8 / 2)];
    below += (column % 2 == 0 ? word & 0xFFFF : word >> 16) < threshold ? 1 : 0;
  }
  return below;
}

TEST(DropoutRow, DropsTheShareAndKeepsTheMean) {
  DropoutSpec spec;
  spec.key = {1, 2, Site::kHiddenDropout, 3};
  for (const double rate : {0.1, 0.5, 0.9}) {
    spec.rate = rate;
    std::vector<double> values(200'000, 1.0);
    cpu::dropout_row(spec, 0, 0, 0, static_cast<std::int64_t>(values.size()), values.data());
    const auto dropped = std::count(values.begin(), values.end(), 0.0);
    EXPECT_EQ(dropped, draws_below(spec, static_cast<std::int64_t>(values.size())));
    EXPECT_NEAR(static_cast<double>(dropped) / 200'000, rate, 0.005);
    EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / 200'000, 1, 0.03);
  }
  spec.rate = 0.999999;
  std::vector<float> values(1000, 1.0F);
  cpu::dropout_row(spec, 0, 0, 0, 1000, values.data());
  for (const float value : values) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace gau
