// Batches: padding, row lists, labels, purity; prefetching in order with errors and early ends.
#include "data/loader.h"

#include <gmock/gmock.h>

#include <atomic>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Ids values(const Tensor& tensor) {
  const auto span = tensor.span<std::int32_t>();
  return {span.begin(), span.end()};
}

void expect_equal(const MaskedBatch& a, const MaskedBatch& b) {
  EXPECT_EQ(values(a.ids), values(b.ids));
  EXPECT_EQ(values(a.rows), values(b.rows));
  EXPECT_EQ(values(a.labels), values(b.labels));
}

class LoaderTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    const std::vector<Split> splits = {Split::kTrain, Split::kTrain, Split::kTrain, Split::kValid, Split::kTrain};
    corpus_.emplace(write_corpus("c.h5", {200, 5, 70, 30, 16}, splits));
  }
  const Corpus& corpus() const { return *corpus_; }
  std::optional<Corpus> corpus_;
};

TEST_F(LoaderTest, BatchesAreConsistent) {
  const Loader loader(corpus(), Split::kTrain, {.length = 16, .mask_prob = 0.5, .seed = 1});
  EXPECT_EQ(loader.windows(), 13 + 1 + 5 + 1);
  const Sampler sampler(corpus(), Split::kTrain, 16, 1, true);
  for (std::uint64_t first = 0; first < 100; first += 4) {
    const MaskedBatch batch = loader.batch(first, 4);
    EXPECT_EQ(batch.ids.shape().str(), "[4, 16]");
    EXPECT_EQ(batch.rows.size() % 32, 0);
    EXPECT_EQ(batch.rows.size(), batch.labels.size());
    EXPECT_EQ(batch.epoch, static_cast<std::int64_t>(first / 20));
    const Ids ids = values(batch.ids);
    const Ids rows = values(batch.rows);
    const Ids labels = values(batch.labels);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.begin() + batch.masked));
    // Every token is either a label or where it was.
    std::vector<Ids> original;
    std::int64_t tokens = 0;
    for (std::uint64_t b = 0; b < 4; ++b) {
      const Window window = sampler.at(first + b);
      original.push_back(corpus().tokens(window.document, window.begin, window.end - window.begin));
      tokens += window.end - window.begin;
      for (std::size_t i = 0; i < 16; ++i) {
        const bool real = i < original[b].size();
        EXPECT_EQ(batch.key_mask.defined() ? values(batch.key_mask)[b * 16 + i] : 1, real ? 1 : 0);
        EXPECT_EQ(ids[b * 16 + i] == 0, !real);
      }
    }
    EXPECT_EQ(batch.tokens, tokens);
    EXPECT_EQ(batch.key_mask.defined(), tokens < 64);
    Ids unmasked = ids;
    for (std::size_t m = 0; m < rows.size(); ++m) {
      if (m >= static_cast<std::size_t>(batch.masked)) {
        EXPECT_EQ(rows[m], -1);
        EXPECT_EQ(labels[m], -1);
      } else {
        unmasked[static_cast<std::size_t>(rows[m])] = labels[m];
      }
    }
    for (std::size_t b = 0; b < 4; ++b) {
      EXPECT_TRUE(std::equal(original[b].begin(), original[b].end(), unmasked.begin() + static_cast<std::ptrdiff_t>(b * 16)));
    }
  }
}

TEST_F(LoaderTest, ABatchIsTheSameHoweverItIsCut) {
  const Loader loader(corpus(), Split::kTrain, {.length = 16, .seed = 1});
  const MaskedBatch whole = loader.batch(18, 6);
  Ids ids;
  for (std::uint64_t p = 18; p < 24; ++p) {
    const Ids part = values(loader.batch(p, 1).ids);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  EXPECT_EQ(values(whole.ids), ids);
}

TEST_F(LoaderTest, TinyDocumentsMayHaveNoMask) {
  const Corpus tiny(write_corpus("tiny.h5", {1, 1}, {Split::kTrain, Split::kTrain}));
  const Loader loader(tiny, Split::kTrain, {.length = 8, .mask_prob = 1e-9});
  const MaskedBatch batch = loader.batch(0, 2);
  EXPECT_EQ(batch.masked, 0);
  EXPECT_EQ(batch.tokens, 2);
  EXPECT_EQ(values(batch.rows), Ids(32, -1));
  EXPECT_EQ(values(batch.labels), Ids(32, -1));
}

TEST_F(LoaderTest, ValidationIsFixed) {
  const Loader loader(corpus(), Split::kValid, {.length = 16, .mask_prob = 0.5, .seed = 9, .fixed_masks = true});
  EXPECT_EQ(loader.windows(), 2);
  const MaskedBatch batch = loader.batch(0, 2);
  EXPECT_EQ(batch.tokens, 30);
  EXPECT_GT(batch.masked, 0);
  expect_equal(batch, loader.batch(0, 2));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { loader.batch(1, 2); }), HasSubstr("there are 2 sequences"));
}

TEST_F(LoaderTest, MadeLabelsReplaceMasking) {
  const NameTokenizer tokenizer(Vocabulary::made({"a", "b", "?"}, {}));
  {
    CorpusWriter writer(path("made.h5"), tokenizer, true);
    writer.add(Ids{5, 7, 6, 7}, Ids{-1, 6, -1, 5});
    writer.publish({Split::kTrain}, "{}", "{}");
  }
  const Corpus made(path("made.h5"));
  const MaskedBatch batch = Loader(made, Split::kTrain, {.length = 6}).batch(0, 1);
  EXPECT_EQ(batch.masked, 2);
  Ids kept;
  for (const std::int32_t id : values(batch.ids)) {
    if (id != 0) kept.push_back(id);
  }
  EXPECT_EQ(kept, (Ids{5, 7, 6, 7}));
  EXPECT_EQ(values(batch.labels)[0], 6);
  EXPECT_EQ(values(batch.labels)[1], 5);
  EXPECT_EQ(values(batch.ids)[static_cast<std::size_t>(values(batch.rows)[0])], 7);
  const MaskedBatch masked =
      Loader(made, Split::kTrain, {.length = 4, .mask_prob = 1, .label_mode = LabelMode::kMasking}).batch(0, 1);
  EXPECT_EQ(masked.masked, 4);
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Loader(corpus(), Split::kTrain, {.label_mode = LabelMode::kCorpus}); }),
              HasSubstr("no labels"));
}

TEST_F(LoaderTest, WhatCannotBeLoadedIsRefused) {
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Loader(corpus(), Split::kTest, {}); }),
              HasSubstr("the test split has no tokens"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Loader(corpus(), Split::kTrain, {.mask_prob = 0}); }),
              HasSubstr("mask_prob = 0"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Loader(corpus(), Split::kTrain, {.length = 0}); }), HasSubstr("length = 0"));
}

TEST_F(LoaderTest, PrefetchedBatchesComeInOrder) {
  const Loader loader(corpus(), Split::kTrain, {.length = 16, .seed = 1});
  std::uint64_t position = 40;
  Prefetcher prefetcher(loader, [&]() -> std::optional<BatchSpan> {
    if (position >= 100) return std::nullopt;
    position += 3;
    return BatchSpan{position - 3, 3};
  });
  for (std::uint64_t first = 40; first < 100; first += 3) {
    const auto batch = prefetcher.next();
    ASSERT_TRUE(batch.has_value());
    expect_equal(*batch, loader.batch(first, 3));
  }
  EXPECT_FALSE(prefetcher.next().has_value());
  EXPECT_FALSE(prefetcher.next().has_value());
}

TEST_F(LoaderTest, PrefetcherCarriesErrorsAndEndsEarly) {
  const Loader loader(corpus(), Split::kValid, {.length = 16, .fixed_masks = true});
  std::atomic<std::uint64_t> position{0};
  const auto endless = [&]() -> std::optional<BatchSpan> { return BatchSpan{position++, 1}; };
  {
    Prefetcher prefetcher(loader, endless);
    EXPECT_TRUE(prefetcher.next().has_value());
    EXPECT_TRUE(prefetcher.next().has_value());
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of(ExitCode::kData, [&] { prefetcher.next(); }), HasSubstr("there are 2 sequences"));
    }
  }
  const Loader training(corpus(), Split::kTrain, {.length = 16});
  position = 0;
  {
    // At most `depth` batches wait, and one is in the making.
    Prefetcher prefetcher(training, endless, 3);
    for (std::uint64_t taken = 1; taken <= 200; ++taken) {
      EXPECT_TRUE(prefetcher.next().has_value());
      EXPECT_LE(position, taken + 3 + 2);
    }
  }
}

}  // namespace
}  // namespace gau
