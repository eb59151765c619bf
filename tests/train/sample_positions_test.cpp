// PoSE and randomised positions in training: the samples' positions, the text that goes with them, resuming.
#include "train/sample_positions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/kernels.h"
#include "layers/training_positions.h"
#include "tests/train/small_corpus.h"
#include "train/trainer.h"

namespace gau {
namespace {

constexpr std::int64_t kLength = 32;

std::vector<float> parameters(Trainer& trainer) {
  const Tensor values_of = trainer.model().parameters().values();
  const auto values = values_of.span<float>();
  return {values.begin(), values.end()};
}

std::string corpus_of_long_documents(const Scratch& scratch) {
  PrepareOptions options;
  options.inputs = {GAU_SOURCE_DIR "/tests/data/sample.txt"};
  options.text.format = parse_text_format("document");
  options.output = scratch.file("long.h5");
  options.fractions = {0, 0};
  prepare(options);
  return options.output;
}

TEST(SamplePositions, AreThePureFunctionOfEachSample) {
  const Scratch scratch;
  const Corpus corpus(corpus_of_long_documents(scratch));
  for (const char* name : {"pose:target=512", "random:target=512"}) {
    const PositionTerm term = parse_position(name);
    LoaderOptions options{.length = kLength, .seed = 3};
    options.first_chunk = first_chunk(term, options);
    EXPECT_EQ(static_cast<bool>(options.first_chunk), term.kind == PositionKind::kPose);
    const Loader loader(corpus, Split::kTrain, options);
    const std::uint64_t windows = static_cast<std::uint64_t>(loader.windows());
    const std::uint64_t first = windows - 2;  // goes over the end of an epoch
    const MaskedBatch batch = loader.batch(first, 4);
    const Tensor positions = sample_positions(term, loader, batch);
    ASSERT_EQ(positions.shape().str(), "[4, 32]");
    for (std::uint64_t b = 0; b < 4; ++b) {
      const std::vector<double> own = training_positions(term, 3, b < 2 ? 0 : 1, first + b, kLength);
      for (std::int64_t i = 0; i < kLength; ++i) {
        EXPECT_EQ(positions.at(static_cast<std::int64_t>(b) * kLength + i), own[static_cast<std::size_t>(i)]) << name;
      }
      // The text is cut where the positions are.
      if (term.kind != PositionKind::kPose) continue;
      std::int64_t tokens = 0;
      for (const Window& chunk : loader.stretches(first + b)) tokens += chunk.end - chunk.begin;
      const Window chunk = loader.stretches(first + b).front();
      const std::int64_t cut = pose_split(512, 3, b < 2 ? 0 : 1, first + b, kLength).first;
      EXPECT_EQ(chunk.end - chunk.begin, std::min(tokens, cut));
    }
  }
  const Loader plain(corpus, Split::kTrain, {.length = kLength});
  EXPECT_FALSE(sample_positions(parse_position("rope"), plain, plain.batch(0, 2)).defined());
}

TEST(SamplePositions, TrainingUsesThemAndResumesTheSame) {
  const Scratch scratch;
  const Corpus corpus(corpus_of_long_documents(scratch));
  std::vector<std::vector<float>> ends;
  for (const char* position : {"rope", "pose", "random"}) {
    const Config config = small_config(corpus.path(), scratch.file("run"), {std::string("attention.position=") + position});
    Trainer whole(config, corpus), begun(config, corpus), resumed(config, corpus);
    whole.model().initialize(1);
    begun.model().initialize(1);
    for (std::int64_t step = 0; step < 3; ++step) whole.step(step);
    for (std::int64_t step = 0; step < 2; ++step) begun.step(step);
    kernels::convert(begun.model().parameters().values(), resumed.model().parameters().values());
    resumed.optimizer().restore(begun.optimizer().updates(), begun.optimizer().first(), begun.optimizer().second());
    resumed.step(2);
    EXPECT_EQ(parameters(resumed), parameters(whole)) << position;
    ends.push_back(parameters(whole));
  }
  EXPECT_NE(ends[0], ends[1]);
  EXPECT_NE(ends[0], ends[2]);
  EXPECT_NE(ends[1], ends[2]);
}

}  // namespace
}  // namespace gau
