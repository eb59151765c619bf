// Training on several ranks, as threads: the bits of one rank, whatever the number of ranks, buckets and owners of moments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>

#include "framework/digest.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/log.h"
#include "framework/thread_ranks.h"
#include "tests/train/small_corpus.h"
#include "train/trainer.h"

namespace gau {
namespace {

using Settings = std::vector<std::string>;

struct Outcome {
  StepReport report;
  Tensor values, gradients;
  LossSums validation;

  std::uint64_t bits() const { return xxh64(values.raw(), values.bytes()); }
  std::uint64_t gradient_bits() const { return xxh64(gradients.raw(), gradients.bytes()); }
};

double relative_difference(const Tensor& a, const Tensor& b) {
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a.at(i) - b.at(i)));
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return scale == 0 ? most : most / scale;
}

class Ranks : public testing::Test {
 protected:
  void SetUp() override { log::set_quiet(true); }
  void TearDown() override { log::set_quiet(false); }

  /// Trains on `ranks` ranks; all of them end with the same parameters, which is checked here.
  Outcome train(int ranks, int steps, const Settings& settings, const std::function<void(Trainer&, int)>& prepare = {}) const {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    run_as_threads(ranks, [&](Communicator& communicator) {
      const Corpus corpus(corpus_);
      Trainer trainer(small_config(corpus_, scratch_.file("run"), settings), corpus, communicator);
      trainer.model().initialize(3);
      if (prepare) prepare(trainer, communicator.rank());
      Outcome& mine = outcomes[static_cast<std::size_t>(communicator.rank())];
      for (int s = 0; s < steps; ++s) mine.report = trainer.step(s, [&] { return 1U << communicator.rank(); });
      mine.gradients = trainer.model().parameters().gradients().clone();
      mine.values = trainer.model().parameters().values().clone();
      mine.validation = trainer.validate(5);
    });
    for (const Outcome& other : outcomes) {
      EXPECT_EQ(other.bits(), outcomes[0].bits());
      EXPECT_EQ(other.gradient_bits(), outcomes[0].gradient_bits());
      EXPECT_EQ(other.report.sums.loss, outcomes[0].report.sums.loss);
      EXPECT_EQ(other.report.flags, outcomes[0].report.flags);
    }
    EXPECT_EQ(outcomes[0].report.flags, steps > 0 ? (1U << ranks) - 1 : 0);
    return outcomes[0];
  }

  Scratch scratch_;
  std::string corpus_ = small_corpus(scratch_);
};

TEST_F(Ranks, GradientsHaveOneHash) {
  const Settings settings{"data.batch=16", "optim.accumulate=2"};
  const Outcome one = train(1, 1, settings);
  ASSERT_GT(one.report.sums.count, 20);
  for (const int ranks : {2, 4, 8}) {
    for (const char* bucket : {"train.bucket=1000000", "train.bucket=777", "train.bucket=4096"}) {
      Settings cut = settings;
      cut.push_back(bucket);
      const Outcome many = train(ranks, 1, cut);
      EXPECT_EQ(many.gradient_bits(), one.gradient_bits()) << ranks << " ranks, " << bucket;
      EXPECT_EQ(many.report.sums.loss, one.report.sums.loss);
      EXPECT_EQ(many.report.sums.tokens, one.report.sums.tokens);
      EXPECT_EQ(many.report.gradient_norm, one.report.gradient_norm);
    }
  }
}

TEST_F(Ranks, TwentyStepsAreThoseOfOneRank) {
  const Settings settings{"optim.steps=20", "data.batch=8", "train.bucket=5000"};
  const Outcome one = train(1, 20, settings);
  for (const int ranks : {2, 4}) {
    const Outcome many = train(ranks, 20, settings);
    EXPECT_EQ(many.bits(), one.bits()) << ranks << " ranks";
    EXPECT_EQ(many.validation.loss, one.validation.loss);
    EXPECT_EQ(many.validation.count, one.validation.count);
  }
  const Outcome three = train(3, 20, settings);
  EXPECT_NE(three.bits(), one.bits());
  EXPECT_LE(relative_difference(three.values, one.values), 1e-5);
}

TEST_F(Ranks, SharedMomentsChangeNoBit) {
  for (const char* name : {"adamw", "lamb"}) {
    const Settings settings{std::string("optim.name=") + name, "train.bucket=3001"};
    Settings shared = settings;
    shared.push_back("train.zero=true");
    const Outcome whole = train(1, 4, settings);
    for (const int ranks : {2, 4}) {
      EXPECT_EQ(train(ranks, 4, settings).bits(), whole.bits()) << name;
      EXPECT_EQ(train(ranks, 4, shared).bits(), whole.bits()) << name << ", " << ranks << " ranks share";
    }
    std::int64_t elements = 0, parameters = 0;
    train(4, 1, shared, [&](Trainer& trainer, int rank) {
      if (rank != 2) return;
      elements = trainer.optimizer().first().size();
      parameters = trainer.parameters();
    });
    EXPECT_NEAR(static_cast<double>(elements), static_cast<double>(parameters) / 4, 20);
  }
}

// Sums with one division: neither ranks nor micro-steps nor how few tokens are masked changes a mean.
TEST_F(Ranks, HowABatchIsSplitDoesNotMatter) {
  struct Case {
    std::int64_t masked;
    std::string probability;
  };
  for (const Case& wanted : {Case{0, "0.000001"}, Case{1, "0.004"}, Case{76, "0.3"}}) {
    const Settings base{"data.mask_prob=" + wanted.probability, "model.dropout=0", "model.attention_dropout=0"};
    std::string seed;
    for (int s = 0; s < 400 && seed.empty(); ++s) {
      const Corpus corpus(corpus_);
      LoaderOptions options;
      options.length = 32;
      options.mask_prob = std::stod(wanted.probability);
      options.seed = static_cast<std::uint64_t>(s);
      if (Loader(corpus, Split::kTrain, options).batch(0, 8).masked == wanted.masked) seed = std::to_string(s);
    }
    ASSERT_FALSE(seed.empty()) << wanted.masked;
    const auto split = [&](int ranks, int batch, int accumulate, const char* shards) {
      Settings settings = base;
      settings.insert(settings.end(),
                      {"train.seed=" + seed, "data.batch=" + std::to_string(batch),
                       "optim.accumulate=" + std::to_string(accumulate), std::string("train.shards=") + shards});
      return train(ranks, 1, settings);
    };
    const Outcome whole = split(1, 8, 1, "1");
    EXPECT_EQ(whole.report.sums.count, wanted.masked);
    EXPECT_EQ(whole.report.skipped.empty(), wanted.masked > 0);
    for (const auto& [ranks, batch, accumulate] : std::vector<std::array<int, 3>>{
             {1, 1, 8}, {1, 4, 2}, {2, 8, 1}, {2, 2, 4}, {3, 8, 1}, {4, 4, 2}, {4, 1, 8}, {8, 8, 1}}) {
      const Outcome part = split(ranks, batch, accumulate, "8");
      EXPECT_EQ(part.report.sums.count, wanted.masked);
      EXPECT_LE(relative_difference(part.gradients, whole.gradients), 1e-6) << ranks << " × " << batch << " × " << accumulate;
      EXPECT_NEAR(part.report.sums.loss, whole.report.sums.loss, 1e-6 * whole.report.sums.loss);
      EXPECT_LE(relative_difference(part.values, whole.values), 1e-4);
    }
  }
}

TEST_F(Ranks, NotANumberOnOneRankIsSkippedOnAll) {
  const std::uint64_t before = train(4, 0, {}, {}).bits();
  std::vector<StepReport> reports(4);
  std::vector<std::uint64_t> bits(4);
  run_as_threads(4, [&](Communicator& ranks) {
    const Corpus corpus(corpus_);
    Trainer trainer(small_config(corpus_, scratch_.file("run")), corpus, ranks);
    trainer.model().initialize(3);
    Tensor values = trainer.model().parameters().values();
    const float kept = values.data<float>()[values.size() - 500];
    if (ranks.rank() == 2) values.data<float>()[values.size() - 500] = NAN;
    const auto r = static_cast<std::size_t>(ranks.rank());
    reports[r] = trainer.step(0);
    values.data<float>()[values.size() - 500] = kept;
    bits[r] = xxh64(values.raw(), values.bytes());
    EXPECT_EQ(trainer.optimizer().updates(), 0);
  });
  for (const StepReport& report : reports) {
    EXPECT_TRUE(report.non_finite);
    EXPECT_EQ(report.skipped, reports[0].skipped);
    EXPECT_THAT(report.skipped, testing::HasSubstr("rank 2"));
  }
  EXPECT_THAT(bits, testing::Each(before));
}

TEST_F(Ranks, MoreRanksThanSequences) {
  const Settings settings{"data.batch=2", "optim.accumulate=2"};
  EXPECT_EQ(train(4, 3, settings).bits(), train(1, 3, settings).bits());
  EXPECT_LE(relative_difference(train(5, 3, settings).values, train(1, 3, settings).values), 1e-5);
}

TEST_F(Ranks, RoundedWireKeepsRanksEqualAndNearTheExactSums) {
  const Settings exact{"train.bucket=3001", "optim.lr=1e-3"};
  Settings rounded = exact;
  rounded.push_back("train.wire=bf16");
  const Outcome a = train(4, 1, exact), b = train(4, 1, rounded);
  const double difference = relative_difference(b.gradients, a.gradients);
  EXPECT_GT(difference, 1e-6) << "nothing was rounded";
  EXPECT_LT(difference, 0.02);
}

TEST_F(Ranks, OrderOfRanksOnRequest) {
  const Settings settings{"train.reduce=rank", "data.batch=8"};
  const Outcome tree = train(4, 2, {"data.batch=8"}), rank = train(4, 2, settings), one = train(1, 2, settings);
  EXPECT_NE(rank.bits(), tree.bits());
  EXPECT_LE(relative_difference(rank.values, tree.values), 1e-5);
  EXPECT_LE(relative_difference(one.values, tree.values), 1e-5);
}

TEST_F(Ranks, PlanGivesEachRankItsPartOfTheTree) {
  TrainConfig config;
  const ShardPlan third = ShardPlan::of(config, 3, 4);
  EXPECT_EQ(third.order, ReduceOrder::kTree);
  EXPECT_EQ(third.first, 6);
  EXPECT_EQ(third.last, 8);
  for (const int ranks : {3, 16}) EXPECT_EQ(ShardPlan::of(config, 0, ranks).order, ReduceOrder::kRank);
  EXPECT_EQ(ShardPlan::of(config, 2, 3).shards, 3);
}

// Two or more ranks share each sequence: losses of one rank, to the bit before the first update; gradients up to rounding.
TEST_F(Ranks, SharedSequencesTrainAsOneRank) {
  const Settings settings{"data.length=300", "data.batch=4", "optim.accumulate=2", "train.bucket=3001"};
  const Outcome one = train(1, 1, settings), none = train(1, 0, settings), later = train(1, 6, settings);
  ASSERT_GT(one.report.sums.count, 100);
  const auto shared = [&](int ranks, int sharing, int steps, const Settings& more = {}) {
    Settings all = settings;
    all.push_back("train.sequence_parallel=" + std::to_string(sharing));
    all.insert(all.end(), more.begin(), more.end());
    return train(ranks, steps, all);
  };
  for (const int sharing : {2, 3, 4}) {
    const Outcome many = shared(sharing, sharing, 1);
    EXPECT_EQ(many.report.sums.loss, one.report.sums.loss) << sharing << " ranks";
    EXPECT_EQ(many.report.sums.count, one.report.sums.count);
    EXPECT_EQ(many.report.sums.correct, one.report.sums.correct);
    EXPECT_EQ(many.report.sums.tokens, one.report.sums.tokens);
    EXPECT_LE(relative_difference(many.gradients, one.gradients), 1e-6);
    EXPECT_EQ(shared(sharing, sharing, 0).validation.loss, none.validation.loss);
    EXPECT_LE(relative_difference(shared(sharing, sharing, 6).values, later.values), 1e-4);
  }
  // How many groups there are changes no bit; nor do owners of moments.
  const Outcome two = shared(2, 2, 3);
  EXPECT_EQ(shared(4, 2, 3).bits(), two.bits());
  EXPECT_EQ(shared(8, 2, 3).bits(), two.bits());
  EXPECT_EQ(shared(4, 2, 3, {"train.zero=true"}).bits(), two.bits());
  EXPECT_THROW(shared(4, 3, 0), Error);
}

// The same with keys that travel in a ring: equal up to rounding from the first loss on, and the same bits in every run.
TEST_F(Ranks, SharedSequencesInARingTrainAsOneRank) {
  const Settings settings{"data.length=300", "data.batch=4", "optim.accumulate=2", "train.bucket=3001"};
  const Outcome one = train(1, 1, settings), later = train(1, 6, settings);
  const auto shared = [&](int ranks, int sharing, int steps) {
    Settings all = settings;
    all.push_back("train.sequence_parallel=" + std::to_string(sharing));
    all.push_back("train.sequence_exchange=ring");
    return train(ranks, steps, all);
  };
  for (const int sharing : {2, 3, 4}) {
    const Outcome many = shared(sharing, sharing, 1);
    EXPECT_NEAR(many.report.sums.loss, one.report.sums.loss, 2e-6 * one.report.sums.loss) << sharing << " ranks";
    EXPECT_LE(relative_difference(many.gradients, one.gradients), 2e-6);
    EXPECT_LE(relative_difference(shared(sharing, sharing, 6).values, later.values), 1e-4);
  }
  const Outcome two = shared(2, 2, 3);
  EXPECT_EQ(shared(2, 2, 3).bits(), two.bits());
  EXPECT_EQ(shared(4, 2, 3).bits(), two.bits());
}

}  // namespace
}  // namespace gau
