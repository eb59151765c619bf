// Sequences of two chunks: where their tokens, masks and labels come from.
#include <gmock/gmock.h>

#include <set>

#include "data/loader.h"
#include "tests/data/helpers.h"

namespace gau {
namespace {

constexpr std::int64_t kLength = 16;

std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto span = tensor.span<std::int32_t>();
  return {span.begin(), span.end()};
}

class PoseLoaderTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    corpus_.emplace(write_corpus("c.h5", {400, 5, 90}, {Split::kTrain, Split::kTrain, Split::kTrain}, 1000));
  }
  LoaderOptions options() const {
    LoaderOptions result{.length = kLength, .mask_prob = 0.3, .seed = 1};
    result.first_chunk = [](std::uint64_t epoch, std::uint64_t position) {
      return 1 + static_cast<std::int64_t>((3 * epoch + 5 * position) % (kLength / 2));
    };
    return result;
  }
  std::optional<Corpus> corpus_;
};

TEST_F(PoseLoaderTest, SecondChunksAreTheDocumentsTextAtALaterPlace) {
  const Loader loader(*corpus_, Split::kTrain, options());
  const Sampler sampler(*corpus_, Split::kTrain, kLength, 1, true);
  std::set<std::int64_t> gaps;
  for (std::uint64_t position = 0; position < 200; ++position) {
    const Window window = sampler.at(position);
    const std::vector<Window> chunks = loader.stretches(position);
    const std::int64_t first = options().first_chunk(static_cast<std::uint64_t>(window.epoch), position);
    const std::int64_t tokens = window.end - window.begin;
    ASSERT_EQ(chunks.size(), first < tokens ? 2U : 1U);
    EXPECT_EQ(chunks[0].begin, window.begin);
    std::vector<std::int32_t> expected;
    for (const Window& chunk : chunks) {
      EXPECT_EQ(chunk.document, window.document);
      const auto text = corpus_->tokens(chunk.document, chunk.begin, chunk.end - chunk.begin);
      expected.insert(expected.end(), text.begin(), text.end());
    }
    ASSERT_EQ(static_cast<std::int64_t>(expected.size()), tokens);
    if (chunks.size() == 2) {
      EXPECT_EQ(chunks[0].end, window.begin + first);
      EXPECT_GE(chunks[1].begin, chunks[0].end);
      EXPECT_LE(chunks[1].end, corpus_->document_length(window.document));
      if (window.document == 0) gaps.insert(chunks[1].begin - chunks[0].end);
    }
    // The batch holds that text, but for its masked tokens, which are its labels.
    const MaskedBatch batch = loader.batch(position, 1);
    EXPECT_EQ(batch.first_position, position);
    std::vector<std::int32_t> ids = values(batch.ids);
    for (std::int64_t m = 0; m < batch.masked; ++m) {
      ids[static_cast<std::size_t>(values(batch.rows)[static_cast<std::size_t>(m)])] =
          values(batch.labels)[static_cast<std::size_t>(m)];
    }
    ids.resize(static_cast<std::size_t>(tokens));
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(batch.tokens, tokens);
  }
  EXPECT_GT(gaps.size(), 60U);
  EXPECT_GT(*gaps.rbegin(), 200);
}

TEST_F(PoseLoaderTest, ChunksDependOnThePositionAlone) {
  const Loader loader(*corpus_, Split::kTrain, options());
  const Loader again(*corpus_, Split::kTrain, options());
  const MaskedBatch whole = loader.batch(40, 8);
  for (std::uint64_t b = 0; b < 8; ++b) {
    const auto part = values(again.batch(40 + b, 1).ids);
    const auto all = values(whole.ids);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(b * kLength)));
  }
}

TEST_F(PoseLoaderTest, MadeLabelsFollowTheirTokens) {
  const NameTokenizer tokenizer(Vocabulary::made({"a", "?"}, {}));
  {
    CorpusWriter writer(path("made.h5"), tokenizer, true);
    std::vector<std::int32_t> tokens(64, 5), labels(64, -1);
    for (std::size_t i = 3; i < 64; i += 7) {
      tokens[i] = 6;
      labels[i] = 5;
    }
    writer.add(tokens, labels);
    writer.publish({Split::kTrain}, "{}", "{}");
  }
  const Corpus made(path("made.h5"));
  const Loader loader(made, Split::kTrain, options());
  for (std::uint64_t position = 0; position < 20; ++position) {
    const MaskedBatch batch = loader.batch(position, 1);
    const auto ids = values(batch.ids);
    EXPECT_EQ(batch.masked, std::count(ids.begin(), ids.end(), 6));
    for (std::int64_t m = 0; m < batch.masked; ++m) {
      EXPECT_EQ(ids[static_cast<std::size_t>(values(batch.rows)[static_cast<std::size_t>(m)])], 6);
    }
  }
}

}  // namespace
}  // namespace gau
