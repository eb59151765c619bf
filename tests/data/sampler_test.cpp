// Sampling: every token once an epoch, whatever the lengths, at cuts and in an order that change; pure in (seed, position).
#include "data/sampler.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using ::testing::HasSubstr;

class SamplerTest : public DataTest {
 protected:
  const std::vector<std::int64_t> lengths_ = {1, 7, 8, 0, 9, 64, 100, 3};
  const std::vector<Split> splits_ = {Split::kTrain, Split::kTrain, Split::kTrain, Split::kTrain,
                                      Split::kTrain, Split::kTrain, Split::kTrain, Split::kValid};
};

/// How often each token of each document is in the windows [first, first + count).
std::vector<std::vector<int>> visits(const Corpus& corpus, const Sampler& sampler, std::int64_t first, std::int64_t count,
                                     std::int64_t length) {
  std::vector<std::vector<int>> seen;
  for (std::int64_t d = 0; d < corpus.documents(); ++d)
    seen.emplace_back(static_cast<std::size_t>(corpus.document_length(d)), 0);
  for (std::int64_t p = first; p < first + count; ++p) {
    const Window window = sampler.at(static_cast<std::uint64_t>(p));
    EXPECT_GE(window.begin, 0);
    EXPECT_LT(window.begin, window.end);
    EXPECT_LE(window.end - window.begin, length);
    for (std::int64_t i = window.begin; i < window.end; ++i) {
      ++seen.at(static_cast<std::size_t>(window.document)).at(static_cast<std::size_t>(i));
    }
  }
  return seen;
}

TEST_F(SamplerTest, EveryTokenOnceAnEpoch) {
  const Corpus corpus(write_corpus("c.h5", lengths_, splits_));
  for (const std::int64_t length : {1, 5, 8, 64, 1000}) {
    const Sampler sampler(corpus, Split::kTrain, length, 3, true);
    std::int64_t expected = 0;
    for (std::size_t d = 0; d + 1 < lengths_.size(); ++d) expected += (lengths_[d] + length - 1) / length;
    EXPECT_EQ(sampler.windows(), expected);
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      const auto seen = visits(corpus, sampler, epoch * expected, expected, length);
      for (std::size_t d = 0; d < lengths_.size(); ++d) {
        for (const int times : seen[d])
          EXPECT_EQ(times, splits_[d] == Split::kTrain ? 1 : 0) << length << " " << epoch << " " << d;
      }
      EXPECT_EQ(sampler.at(static_cast<std::uint64_t>(epoch * expected)).epoch, epoch);
    }
  }
}

TEST_F(SamplerTest, CutsAndOrderChangeByEpochAndSeed) {
  const Corpus corpus(write_corpus("c.h5", {100}, {Split::kTrain}));
  const Sampler sampler(corpus, Split::kTrain, 64, 1, true);
  // 100 tokens in 2 windows of 64 leave 28 free: 29 phases, the first window ends at 64 - φ.
  std::set<std::int64_t> cuts;
  std::set<std::int64_t> firsts;
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) {
    const Window a = sampler.at(2 * epoch);
    const Window b = sampler.at(2 * epoch + 1);
    firsts.insert(a.begin == 0 ? 0 : 1);
    cuts.insert(std::min(a.end, b.end));
    EXPECT_EQ(std::min(a.end, b.end), std::max(a.begin, b.begin));
  }
  EXPECT_EQ(cuts.size(), 29U);
  EXPECT_EQ(*cuts.begin(), 36);
  EXPECT_EQ(*cuts.rbegin(), 64);
  EXPECT_EQ(firsts.size(), 2U);
}

TEST_F(SamplerTest, PureInSeedAndPosition) {
  const Corpus corpus(write_corpus("c.h5", std::vector<std::int64_t>(50, 10), std::vector<Split>(50, Split::kTrain)));
  const Sampler one(corpus, Split::kTrain, 10, 1, true);
  const Sampler same(corpus, Split::kTrain, 10, 1, true);
  const Sampler other(corpus, Split::kTrain, 10, 2, true);
  int equal = 0;
  int next_epoch = 0;
  // Backwards: nothing depends on what was asked before.
  for (std::uint64_t p = 50; p-- > 0;) {
    EXPECT_EQ(one.at(p).document, same.at(p).document);
    equal += one.at(p).document == other.at(p).document ? 1 : 0;
    next_epoch += one.at(p).document == one.at(p + 50).document ? 1 : 0;
  }
  EXPECT_LT(equal, 10);
  EXPECT_LT(next_epoch, 10);
}

TEST_F(SamplerTest, EvaluationGoesInOrder) {
  const Corpus corpus(write_corpus("c.h5", lengths_, splits_));
  const Sampler sampler(corpus, Split::kTrain, 8, 1, false);
  std::int64_t document = 0;
  std::int64_t end = 0;
  for (std::int64_t p = 0; p < sampler.windows(); ++p) {
    const Window window = sampler.at(static_cast<std::uint64_t>(p));
    EXPECT_EQ(window.begin % 8, 0);
    if (window.document != document) {
      EXPECT_EQ(end, lengths_[static_cast<std::size_t>(document)]);
      EXPECT_EQ(window.begin, 0);
    } else {
      EXPECT_EQ(window.begin, end);
    }
    document = window.document;
    end = window.end;
  }
}

TEST_F(SamplerTest, NothingToSample) {
  const Corpus corpus(write_corpus("c.h5", lengths_, splits_));
  const Sampler sampler(corpus, Split::kTest, 8, 1, true);
  EXPECT_EQ(sampler.windows(), 0);
  EXPECT_THAT(error_of(ExitCode::kData, [&] { sampler.at(0); }), HasSubstr("c.h5: no tokens"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Sampler(corpus, Split::kTrain, 0, 1, true); }), HasSubstr("length = 0"));
}

}  // namespace
}  // namespace gau
