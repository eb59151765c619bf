// Masking: shares, specials, whole words, and what the draws depend on.
#include "data/masking.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// Pieces of words, as a vocabulary with "##" has them.
class PieceTokenizer : public NameTokenizer {
 public:
  PieceTokenizer() : NameTokenizer(Vocabulary::made({"un", "##believ", "##able", "end"}, {})) {
    word_parts_[6] = word_parts_[7] = WordPart::kPiece;
  }
};

struct Shares {
  double chosen = 0;
  double masked = 0;
  double random = 0;
  double kept = 0;
};

/// Masks windows of 64 with `tokens` again and again, a million tokens in all.
Shares shares_of(const Masker& masker, const Ids& tokens, std::int32_t mask_id) {
  constexpr std::int64_t kWindows = 1000000 / 64;
  Shares shares;
  for (std::int64_t w = 0; w < kWindows; ++w) {
    Ids ids(64);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = tokens[(static_cast<std::size_t>(w) * 64 + i) % tokens.size()];
    const Ids before = ids;
    for (const std::int32_t i : masker.mask({7, w * 64, w * 64 + 64, 0}, ids)) {
      const auto at = static_cast<std::size_t>(i);
      shares.chosen += 1;
      (ids[at] == mask_id ? shares.masked : ids[at] == before[at] ? shares.kept : shares.random) += 1;
    }
  }
  shares.masked /= shares.chosen;
  shares.random /= shares.chosen;
  shares.kept /= shares.chosen;
  shares.chosen /= kWindows * 64;
  return shares;
}

Vocabulary letters() {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(std::string(1, static_cast<char>('a' + i % 26)) + std::to_string(i));
  names.push_back(" ");
  names.push_back("x");
  return Vocabulary::made(names, {});
}

TEST(Masking, SharesOfAMillionTokens) {
  const NameTokenizer tokenizer(letters());
  Ids tokens(997);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(5 + i % 1000);
  for (const double p : {0.15, 0.5}) {
    const Shares shares = shares_of(Masker(tokenizer, {.probability = p, .seed = 1}), tokens, 4);
    EXPECT_NEAR(shares.chosen, p, 0.005);
    EXPECT_NEAR(shares.masked, 0.8, 0.005);
    EXPECT_NEAR(shares.random, 0.1, 0.005);
    EXPECT_NEAR(shares.kept, 0.1, 0.005);
  }
}

TEST(Masking, WholeWordSharesWithLongWords) {
  VocabularyBuilder builder;
  builder.add("abcdefghijklmnopqrstuvwxyz ");
  const CharTokenizer tokenizer(builder.build(0, 1, {}));
  for (const std::string& text : {std::string("the quick brown foxes "), std::string("incomprehensibilities of ")}) {
    const Shares shares =
        shares_of(Masker(tokenizer, {.probability = 0.15, .whole_word = true, .seed = 2}), tokenizer.encode(text), 4);
    EXPECT_NEAR(shares.chosen, 0.15, 0.005) << text;
    EXPECT_NEAR(shares.masked, 0.8, 0.015) << text;
  }
}

TEST(Masking, WordsAreChosenWhole) {
  const PieceTokenizer tokenizer;
  const Masker masker(tokenizer, {.probability = 0.3, .whole_word = true, .seed = 3});
  std::array<int, 2> decisions{};
  for (std::int64_t epoch = 0; epoch < 500; ++epoch) {
    Ids ids = {8, 5, 6, 7, 5, 6, 7, 8};
    const Ids before = ids;
    const Ids chosen = masker.mask({0, 0, 8, epoch}, ids);
    const auto has = [&](std::int32_t i) { return std::find(chosen.begin(), chosen.end(), i) != chosen.end(); };
    for (const std::int32_t word : {1, 4}) {
      EXPECT_EQ(has(word), has(word + 1)) << epoch;
      EXPECT_EQ(has(word), has(word + 2)) << epoch;
      ++decisions[has(word) ? 1 : 0];
      if (!has(word)) continue;
      // One fate for the word: masked in all its parts or in none.
      const auto at = static_cast<std::size_t>(word);
      EXPECT_EQ(ids[at] == 4, ids[at + 1] == 4);
      EXPECT_EQ(ids[at] == 4, ids[at + 2] == 4);
    }
  }
  EXPECT_NEAR(decisions[1] / 1000.0, 0.3, 0.05);
}

TEST(Masking, TextWithoutBlanksIsMaskedInParts) {
  VocabularyBuilder builder;
  builder.add("a");
  const CharTokenizer tokenizer(builder.build(0, 1, {}));
  const Masker masker(tokenizer, {.probability = 0.5, .whole_word = true, .seed = 8});
  bool in_parts = false;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    Ids ids(96, 5);
    const Ids chosen = masker.mask({0, 0, 96, epoch}, ids);
    EXPECT_EQ(chosen.size() % 32, 0U);
    in_parts = in_parts || (!chosen.empty() && chosen.size() < 96);
  }
  EXPECT_TRUE(in_parts);
}

TEST(Masking, WordsOfCharacters) {
  VocabularyBuilder builder;
  builder.add("abc ,中文e\u0301");
  const CharTokenizer tokenizer(builder.build(0, 1, {}));
  const Masker masker(tokenizer, {.probability = 0.5, .whole_word = true, .seed = 4});
  const Ids text = tokenizer.encode("ab c,中文ae\u0301b");
  // Which neighbours always share their fate: within "ab", and within "ae\u0301b".
  std::vector<bool> together(text.size() - 1, true);
  for (std::int64_t epoch = 0; epoch < 200; ++epoch) {
    Ids ids = text;
    std::vector<bool> chosen(text.size(), false);
    for (const std::int32_t i : masker.mask({0, 0, static_cast<std::int64_t>(text.size()), epoch}, ids)) {
      chosen[static_cast<std::size_t>(i)] = true;
    }
    for (std::size_t i = 0; i + 1 < text.size(); ++i) together[i] = together[i] && chosen[i] == chosen[i + 1];
  }
  EXPECT_THAT(together, ElementsAre(true, false, false, false, false, false, false, true, true, true));
}

TEST(Masking, SpecialsAreNeverChosenNorPutIn) {
  SpecialNames names;
  // Specials in the middle and at the end of the vocabulary.
  const NameTokenizer tokenizer(Vocabulary({"a", "[PAD]", "b", "[MASK]", "c", "[UNK]", "[CLS]", "d", "[SEP]"}, names, "test"));
  const SpecialIds special = tokenizer.vocabulary().special();
  const Masker masker(tokenizer, {.probability = 1, .seed = 5});
  std::array<int, 9> put_in{};
  for (std::int64_t epoch = 0; epoch < 3000; ++epoch) {
    Ids ids = {6, 0, 5, 2, 4, 8, 7, 1, 1};
    const Ids before = ids;
    EXPECT_THAT(masker.mask({0, 0, 9, epoch}, ids), ElementsAre(1, 3, 4, 6));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (special.contains(before[i])) {
        EXPECT_EQ(ids[i], before[i]);
      } else {
        ++put_in[static_cast<std::size_t>(ids[i])];
      }
    }
  }
  for (std::int32_t id = 0; id < 9; ++id) {
    const int count = put_in[static_cast<std::size_t>(id)];
    if (id == special.mask) {
      EXPECT_NEAR(count, 9600, 300);
    } else if (special.contains(id)) {
      EXPECT_EQ(count, 0) << id;
    } else {
      // A quarter of the random ones, and its own kept ones.
      EXPECT_NEAR(count, 600, 120) << id;
    }
  }
}

TEST(Masking, DrawsBelongToTheTokenNotToTheWindow) {
  const NameTokenizer tokenizer(letters());
  const Masker masker(tokenizer, {.probability = 0.3, .seed = 6});
  Ids whole(100, 10);
  const Ids chosen = masker.mask({3, 0, 100, 2}, whole);
  Ids part(50, 10);
  Ids expected;
  for (const std::int32_t i : chosen) {
    if (i >= 30 && i < 80) expected.push_back(i - 30);
  }
  EXPECT_EQ(masker.mask({3, 30, 80, 2}, part), expected);
  EXPECT_EQ(part, Ids(whole.begin() + 30, whole.begin() + 80));
  const auto differs = [&](const Window& window, std::uint64_t seed) {
    Ids ids(100, 10);
    return Masker(tokenizer, {.probability = 0.3, .seed = seed}).mask(window, ids) != chosen;
  };
  EXPECT_FALSE(differs({3, 0, 100, 2}, 6));
  EXPECT_TRUE(differs({4, 0, 100, 2}, 6));
  EXPECT_TRUE(differs({3, 0, 100, 3}, 6));
  EXPECT_TRUE(differs({3, 0, 100, 2}, 7));
  EXPECT_TRUE(differs({3, 100, 200, 2}, 6));
}

TEST(Masking, ProbabilityIsChecked) {
  const NameTokenizer tokenizer(letters());
  for (const double p : {0.0, -0.1, 1.1, std::nan("")}) {
    EXPECT_THAT(error_of(ExitCode::kData, [&] { Masker(tokenizer, {.probability = p}); }), HasSubstr("mask_prob"));
  }
}

}  // namespace
}  // namespace gau
