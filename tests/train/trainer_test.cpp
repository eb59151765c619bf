// The training step: sums over shards and micro-steps, one division, skipped steps, equal bits.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iterator>

#include "autograd/variable.h"
#include "framework/allocator.h"
#include "framework/attention_counters.h"
#include "framework/kernels.h"
#include "framework/parallel.h"
#include "tests/train/small_corpus.h"

namespace gau {
namespace {

double relative_difference(const Tensor& a, const Tensor& b) {
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a.at(i) - b.at(i)));
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return most / scale;
}

struct Stepped {
  StepReport report;
  Tensor gradients;
  Tensor values;
};

/// The state after `steps` steps under the settings.
Stepped after(const Scratch& scratch, const std::string& corpus_path, const std::vector<std::string>& settings, int steps = 1) {
  const Corpus corpus(corpus_path);
  Trainer trainer(small_config(corpus_path, scratch.file("run"), settings), corpus);
  trainer.model().initialize(3);
  Stepped result;
  for (int s = 0; s < steps; ++s) result.report = trainer.step(s);
  result.gradients = trainer.model().parameters().gradients().clone();
  result.values = trainer.model().parameters().values().clone();
  return result;
}

TEST(GradientTree, AddsAlongOneBinaryTree) {
  // Values whose sum depends on the order in float.
  const std::vector<float> values{1e8F, 1, -1e8F, 3, 7e7F, 0.5F, -7e7F, 0.25F};
  GradientTree tree(8);
  const float left = (values[0] + values[1]) + (values[2] + values[3]);
  const float right = (values[4] + values[5]) + (values[6] + values[7]);
  const std::int64_t size = 300000;  // more than a piece, and not a multiple of it
  const Tensor gradient = Tensor::empty({size}, DType::kF32);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Tensor own = tree.next(gradient);
      kernels::fill(own, values[i]);
      tree.add(gradient, {0, 7});
      if (i + 1 == values.size()) {
        EXPECT_EQ(gradient.at(6), left + right);
        EXPECT_EQ(gradient.at(7), values.back()) << "not yet added";
      }
      tree.add(gradient, {7, size});
      tree.finish_shard();
    }
    for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(gradient.at(i), left + right) << "round " << round << ", element " << i;
  }
}

TEST(GradientTree, OneShardStaysWhereItIs) {
  GradientTree tree(1);
  const Tensor gradient = Tensor::from(std::vector<float>{1, 2}, {2});
  EXPECT_TRUE(tree.next(gradient).same_storage(gradient));
  tree.add(gradient, {0, 2});
  tree.finish_shard();
  EXPECT_EQ(gradient.at(1), 2);
}

TEST(Trainer, GradientsDoNotDependOnHowTheStepIsSplit) {
  const Scratch scratch;
  const std::string corpus = small_corpus(scratch);
  const Stepped whole = after(scratch, corpus, {"train.shards=1", "train.dtype=f64"});
  ASSERT_GT(whole.report.sums.count, 10);
  for (const std::vector<std::string>& split :
       std::vector<std::vector<std::string>>{{"train.shards=8"},
                                             {"train.shards=4"},
                                             {"train.shards=2", "data.batch=4", "optim.accumulate=2"},
                                             {"train.shards=1", "data.batch=2", "optim.accumulate=4"},
                                             {"train.shards=8", "data.batch=1", "optim.accumulate=8"}}) {
    std::vector<std::string> settings = split;
    settings.push_back("train.dtype=f64");
    const Stepped part = after(scratch, corpus, settings);
    EXPECT_EQ(part.report.sums.count, whole.report.sums.count);
    EXPECT_LE(relative_difference(part.gradients, whole.gradients), 1e-12) << split.front();
    EXPECT_NEAR(part.report.gradient_norm, whole.report.gradient_norm, 1e-12 * whole.report.gradient_norm);
    EXPECT_LE(relative_difference(part.values, whole.values), 1e-9) << split.front();
  }
}

// Means of means weigh a batch of 10 masked tokens like one of 100; sums with one division do not.
TEST(Trainer, LossIsASumDividedOnce) {
  LossSums sums;
  sums.loss = 10 * 2.0 + 100 * 4.0;
  sums.count = 110;
  EXPECT_NEAR(sums.mean_loss(), 3.818182, 1e-6);
}

TEST(Trainer, WhatAttentionLeavesOutIsASetting) {
  const Scratch scratch;
  const std::string corpus = small_corpus(scratch);
  // Rows of 256 keys at s = 1000: concentrated enough that keys are left out.
  const auto skipped = [&](const std::string& skip) {
    reset_attention_counters();
    after(scratch, corpus,
          {"data.length=256", "data.batch=2", "attention.kind=cosine", "attention.scale=1000", "train.skip=" + skip});
    return attention_counters().skipped_share();
  };
  EXPECT_EQ(skipped("off"), 0);
  const double exact = skipped("exact");
  EXPECT_GT(exact, 0.1);
  EXPECT_GT(skipped("0.01"), exact);
}

TEST(Trainer, StepWithoutMaskedTokensIsSkipped) {
  const Scratch scratch;
  const std::string corpus = small_corpus(scratch);
  const std::vector<std::string> settings{"data.mask_prob=0.000001"};
  const Stepped none = after(scratch, corpus, settings, 0), one = after(scratch, corpus, settings, 1);
  EXPECT_EQ(one.report.sums.count, 0);
  EXPECT_FALSE(one.report.skipped.empty());
  EXPECT_FALSE(one.report.non_finite);
  EXPECT_EQ(relative_difference(one.values, none.values), 0);
}

TEST(Trainer, NonFiniteGradientLeavesTheParametersAlone) {
  const Scratch scratch;
  const std::string path = small_corpus(scratch);
  const Corpus corpus(path);
  Trainer trainer(small_config(path, scratch.file("run")), corpus);
  trainer.model().initialize(3);
  Tensor bad = trainer.model().parameters().find("gau_alpha.encoder.layer.1.gau.o_dense.weight").variable.value();
  bad.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  const Tensor before = trainer.model().parameters().values().clone();
  const StepReport report = trainer.step(0);
  EXPECT_TRUE(report.non_finite);
  EXPECT_NE(report.skipped.find("gradient of gau_alpha."), std::string::npos) << report.skipped;
  for (std::int64_t i = 0; i < before.size(); ++i) {
    const float now = trainer.model().parameters().values().data<float>()[i];
    ASSERT_TRUE(now == before.data<float>()[i] || std::isnan(now));
  }
  EXPECT_EQ(trainer.optimizer().updates(), 0);
}

TEST(Trainer, SameBitsForAnyNumberOfThreads) {
  const Scratch scratch;
  const std::string corpus = small_corpus(scratch);
  const int before = threads();
  for (const char* kind : {"dot", "cosine"}) {
    const std::vector<std::string> settings{"model.hidden=128", "model.intermediate=256", "model.key_size=64", "data.batch=32",
                                            std::string("attention.kind=") + kind};
    set_threads(1);
    const Stepped one = after(scratch, corpus, settings, 3);
    for (const int count : {2, 4}) {
      set_threads(count);
      const Stepped many = after(scratch, corpus, settings, 3);
      for (std::int64_t i = 0; i < one.values.size(); ++i) {
        ASSERT_EQ(one.values.data<float>()[i], many.values.data<float>()[i]) << kind << ", " << count << " threads";
      }
    }
  }
  set_threads(before);
}

TEST(Trainer, SteadyStateAsksTheSystemForNothing) {
  const auto running = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const Scratch scratch;
  const std::string path = small_corpus(scratch);
  const Corpus corpus(path);
  Trainer trainer(small_config(path, scratch.file("run"), {"optim.steps=100"}), corpus);
  trainer.model().initialize(3);
  // Sizes differ from step to step with the number of masked tokens, and how many batches wait in the prefetcher is a matter of
  // time: so the same steps again until nothing is new.
  std::size_t asked = 1;
  auto threads_running = running();
  for (int round = 0; round < 8 && asked > 0; ++round) {
    const std::size_t before = allocator::system_allocations();
    for (std::int64_t step = 0; step < 40; ++step) {
      trainer.step(step);
      if (round == 0 && step == 0) threads_running = running();
    }
    asked = allocator::system_allocations() - before;
  }
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(running(), threads_running);
}

TEST(Trainer, StepsCanBeTakenFromAnyPoint) {
  const Scratch scratch;
  const std::string path = small_corpus(scratch);
  const Corpus corpus(path);
  const Config config = small_config(path, scratch.file("run"));
  Trainer straight(config, corpus), jumped(config, corpus);
  straight.model().initialize(3);
  jumped.model().initialize(3);
  for (int s = 0; s < 3; ++s) straight.step(s);
  // Step 2 of the other, from the parameters and moments that the first had before it.
  jumped.step(0);
  jumped.step(1);
  Trainer fresh(config, corpus);
  kernels::convert(jumped.model().parameters().values(), fresh.model().parameters().values());
  fresh.optimizer().restore(jumped.optimizer().updates(), jumped.optimizer().first(), jumped.optimizer().second());
  fresh.step(2);
  EXPECT_EQ(relative_difference(fresh.model().parameters().values(), straight.model().parameters().values()), 0);
}

}  // namespace
}  // namespace gau
