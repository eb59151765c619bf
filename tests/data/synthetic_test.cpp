// Made data: the recall task as defined, and a chain that can be learned.
#include "data/synthetic.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using ::testing::HasSubstr;

class SyntheticTest : public DataTest {
 protected:
  SyntheticOptions recall(const std::string& name) const {
    SyntheticOptions options;
    options.kind = SyntheticKind::kRecall;
    options.output = path(name);
    options.documents = 400;
    return options;
  }
};

TEST_F(SyntheticTest, RecallSequences) {
  for (const bool dense : {false, true}) {
    SyntheticOptions options = recall("r.h5");
    options.dense = dense;
    make_synthetic(options);
    const Corpus corpus(path("r.h5"));
    EXPECT_EQ(corpus.vocabulary().size(), 5 + 512 + 32 + 32);
    EXPECT_TRUE(corpus.has_labels());
    std::vector<int> query_places(64, 0);
    for (std::int64_t d = 0; d < corpus.documents(); ++d) {
      ASSERT_EQ(corpus.document_length(d), 64);
      const auto tokens = corpus.tokens(d, 0, 64);
      const auto labels = corpus.labels(d, 0, 64);
      EXPECT_EQ(tokens[0], corpus.special().cls);
      std::map<std::string, std::vector<std::int32_t>> facts;  // by class
      std::map<std::string, std::int32_t> answers;
      std::size_t fillers = 0;
      for (std::size_t i = 1; i < 64; ++i) {
        const std::string& name = corpus.vocabulary().token(tokens[i]);
        const bool query = name[0] == '?';
        EXPECT_EQ(labels[i] >= 0, query);
        if (query) {
          EXPECT_TRUE(answers.emplace(name.substr(1), labels[i]).second) << "a class is asked for once";
          ++query_places[i];
        } else if (name[0] == 'f') {
          ++fillers;
        } else {
          facts[name.substr(0, name.find(':'))].push_back(tokens[i]);
        }
      }
      ASSERT_EQ(answers.size(), 8U);
      std::size_t count = 0;
      for (const auto& [c, of_class] : facts) count += of_class.size();
      EXPECT_EQ(count, dense ? 16U : 8U);
      EXPECT_EQ(fillers, 63 - 8 - count);
      for (const auto& [c, fact] : answers)
        EXPECT_EQ(facts[c], std::vector<std::int32_t>{fact}) << "one fact of the class, the label";
    }
    // Uniform places: 3,200 queries over 63 places, 51 each on average.
    EXPECT_GT(*std::min_element(query_places.begin() + 1, query_places.end()), 20);
    EXPECT_LT(*std::max_element(query_places.begin() + 1, query_places.end()), 90);
  }
}

TEST_F(SyntheticTest, DistancesOfRecallAreSpreadOverBuckets) {
  SyntheticOptions options = recall("b.h5");
  options.documents = 300;
  options.lengths = {64, 512};
  options.distances = {1, 32, 64, 256, 1024};
  options.dense = true;
  make_synthetic(options);
  const Corpus corpus(path("b.h5"));
  // Buckets that a document reaches: up to 62 and up to 510, the last one cut short.
  std::map<std::int64_t, std::map<std::int64_t, std::array<int, 2>>> counts;  // length, bucket, side
  for (std::int64_t d = 0; d < corpus.documents(); ++d) {
    const std::int64_t length = d % 2 == 0 ? 64 : 512;
    ASSERT_EQ(corpus.document_length(d), length);
    const auto tokens = corpus.tokens(d, 0, length);
    const auto labels = corpus.labels(d, 0, length);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int32_t label = labels[static_cast<std::size_t>(i)];
      if (label < 0) continue;
      ASSERT_EQ(std::count(tokens.begin(), tokens.end(), label), 1) << "the fact is where its token is";
      const std::int64_t fact = std::find(tokens.begin(), tokens.end(), label) - tokens.begin();
      const auto edge = std::lower_bound(options.distances.begin(), options.distances.end(), std::abs(i - fact));
      ++counts[length][*edge][fact < i ? 0 : 1];
    }
  }
  const std::map<std::int64_t, std::size_t> reached = {{64, 3}, {512, 5}};
  for (const auto& [length, buckets] : counts) {
    ASSERT_EQ(buckets.size(), reached.at(length)) << length;
    for (const auto& [edge, sides] : buckets) {
      EXPECT_NEAR(sides[0] + sides[1], 150 * 8 / static_cast<int>(buckets.size()), 1) << length << " " << edge;
      EXPECT_GT(sides[0], 80);
      EXPECT_GT(sides[1], 80);
    }
  }
}

TEST_F(SyntheticTest, MadeDataIsAFunctionOfTheSeed) {
  SyntheticOptions options = recall("a.h5");
  make_synthetic(options);
  options.output = path("b.h5");
  make_synthetic(options);
  EXPECT_EQ(read("a.h5"), read("b.h5"));
  options.seed = 1;
  options.output = path("c.h5");
  make_synthetic(options);
  EXPECT_NE(Corpus(path("a.h5")).tokens(0, 0, 64), Corpus(path("c.h5")).tokens(0, 0, 64));
  EXPECT_NE(Corpus(path("a.h5")).tokens(0, 0, 64), Corpus(path("a.h5")).tokens(1, 0, 64));
}

/// Entropy of a symbol given what is before it, from counts.
double conditional_entropy(const std::map<std::vector<std::int32_t>, std::map<std::int32_t, int>>& counts) {
  double entropy = 0;
  double total = 0;
  for (const auto& [context, next] : counts) {
    double sum = 0;
    for (const auto& [symbol, count] : next) sum += count;
    for (const auto& [symbol, count] : next) entropy -= count * std::log(count / sum);
    total += sum;
  }
  return entropy / total;
}

TEST_F(SyntheticTest, MarkovChainCanBeLearned) {
  SyntheticOptions options;
  options.output = path("m.h5");
  options.documents = 64;
  const PrepareReport report = make_synthetic(options);
  const Corpus corpus(path("m.h5"));
  EXPECT_EQ(corpus.document_length(0), 4096);
  EXPECT_FALSE(corpus.has_labels());
  EXPECT_EQ(report.vocab_size, 69);
  std::map<std::vector<std::int32_t>, std::map<std::int32_t, int>> one;
  std::map<std::vector<std::int32_t>, std::map<std::int32_t, int>> two;
  for (std::int64_t d = 0; d < corpus.documents(); ++d) {
    const auto tokens = corpus.tokens(d, 0, 4096);
    for (std::size_t i = 2; i < tokens.size(); ++i) {
      ++one[{tokens[i - 1]}][tokens[i]];
      ++two[{tokens[i - 2] % 2, tokens[i - 1]}][tokens[i]];
    }
  }
  // Nearly uniform taken alone (ln 64 = 4.16), much better known from one symbol before, better still with the parity of the
  // one before: by 0.23; the topic alone, which it hints at, gives 0.18.
  EXPECT_GT(report.unigram_entropy, 3.9);
  EXPECT_LT(conditional_entropy(one), 2.6);
  EXPECT_LT(conditional_entropy(two), conditional_entropy(one) - 0.2);
}

TEST_F(SyntheticTest, OptionsThatDoNotFitAreRefused) {
  const auto failure = [&](SyntheticOptions options) {
    std::string text = error_of(ExitCode::kUsage, [&] { make_synthetic(options); });
    EXPECT_FALSE(std::filesystem::exists(path("x.h5")));
    return text;
  };
  SyntheticOptions options = recall("x.h5");
  options.lengths = {16};
  EXPECT_THAT(failure(options), HasSubstr("8 facts and their queries need 17 tokens"));
  options = recall("x.h5");
  options.facts = 32;
  EXPECT_THAT(failure(options), HasSubstr("--facts 32"));
  options = recall("x.h5");
  options.lengths = {64, -1};
  EXPECT_THAT(failure(options), HasSubstr("at least 1"));
  options = recall("x.h5");
  options.distances = {32, 32};
  EXPECT_THAT(failure(options), HasSubstr("--distances: 32 after 32"));
  options.distances = {1};
  options.facts = 31;
  EXPECT_THAT(failure(options), HasSubstr("no room for a fact 1 to 1 tokens from its query"));
  options = SyntheticOptions{};
  options.output = path("x.h5");
  options.dense = true;
  EXPECT_THAT(failure(options), HasSubstr("--dense"));
  options.dense = false;
  options.distances = {1};
  EXPECT_THAT(failure(options), HasSubstr("--distances"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { parse_synthetic("copy"); }), HasSubstr("known: recall, markov"));
}

}  // namespace
}  // namespace gau
