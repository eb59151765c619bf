// Every configuration of train/examples can be read, and takes two steps at a tiny size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "data/synthetic.h"
#include "tests/train/small_corpus.h"
#include "train/trainer.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> examples() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(GAU_SOURCE_DIR "/train/examples")) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string corpus_for(const std::string& example, const Scratch& scratch) {
  if (!example.starts_with("recall")) return small_corpus(scratch);
  SyntheticOptions options;
  options.kind = SyntheticKind::kRecall;
  options.output = scratch.file("recall.h5");
  options.documents = 40;
  make_synthetic(options);
  return options.output;
}

class Example : public testing::TestWithParam<std::string> {};

TEST_P(Example, TrainsTwoSteps) {
  const Scratch scratch;
  const std::string corpus_path = corpus_for(GetParam(), scratch);
  const std::string file = std::string(GAU_SOURCE_DIR "/train/examples/") + GetParam() + ".toml";
  const Config full = load_config(file, {}, {});
  EXPECT_EQ(full.data.length, 64);
  // The depth stays: windows depend on it.
  const Config config = load_config(file,
                                    {"data.corpus=" + corpus_path, "model.hidden=16", "model.intermediate=24",
                                     "model.key_size=8", "data.batch=4", "optim.steps=4", "optim.warmup=1"},
                                    {});
  const Corpus corpus(corpus_path);
  Trainer trainer(config, corpus);
  trainer.model().initialize(1);
  const Tensor before = trainer.model().parameters().values().clone();
  for (std::int64_t step = 0; step < 2; ++step) {
    const StepReport report = trainer.step(step);
    EXPECT_EQ(report.skipped, "");
    EXPECT_GT(report.sums.count, 0);
    EXPECT_TRUE(std::isfinite(report.sums.mean_loss()));
    EXPECT_GT(report.gradient_norm, 0);
  }
  const Tensor after = trainer.model().parameters().values();
  bool changed = false;
  for (std::int64_t i = 0; i < after.size() && !changed; ++i) changed = after.at(i) != before.at(i);
  EXPECT_TRUE(changed);
}

INSTANTIATE_TEST_SUITE_P(method, Example, testing::ValuesIn(examples()), test_name);

TEST(Examples, NameEveryMethodOfTraining) {
  std::set<std::string> kinds, positions, laws;
  bool window = false, warmup = false, learned = false;
  for (const std::string& name : examples()) {
    const AttentionConfig attention =
        load_config(std::string(GAU_SOURCE_DIR "/train/examples/") + name + ".toml", {}, {}).model.attention;
    kinds.insert(name_of(attention.kind));
    positions.insert(attention.position.substr(0, attention.position.find(':')));
    laws.insert(attention.law);
    window = window || attention.window > 0;
    warmup = warmup || attention.scale_warmup > 0;
    learned = learned || attention.learn_scale;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"dot", "cosine", "keynorm"}));
  EXPECT_EQ(positions, (std::set<std::string>{"rope", "alibi", "hwfa", "hwfa2", "pose", "random"}));
  EXPECT_EQ(laws, (std::set<std::string>{"default", "softmax-plus", "logn", "ssmax", "scale-invariant"}));
  EXPECT_TRUE(window && warmup && learned);
}

TEST(Examples, LabelsOfTheCorpusAreUsedUnlessMaskingIsAskedFor) {
  const Scratch scratch;
  const std::string path = corpus_for("recall", scratch);
  const Corpus corpus(path);
  const auto masked = [&](const char* masking) {
    Trainer trainer(small_config(path, scratch.file("run"), {"data.length=64", std::string("data.masking=") + masking}),
                    corpus);
    trainer.model().initialize(1);
    return trainer.step(0).sums.count;
  };
  EXPECT_EQ(masked("auto"), 8 * 8);
  EXPECT_EQ(masked("corpus"), 8 * 8);
  EXPECT_NE(masked("random"), 8 * 8);
}

}  // namespace
}  // namespace gau
