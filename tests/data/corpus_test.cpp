// Corpus files: what is written comes back, and what is not a corpus is refused.
#include "data/corpus.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class CorpusTest : public DataTest {};

TEST_F(CorpusTest, WhatIsWrittenComesBack) {
  const Corpus corpus(write_corpus("c.h5", {3, 0, 5, 2}, {Split::kTrain, Split::kTrain, Split::kValid, Split::kTest}));
  EXPECT_EQ(corpus.documents(), 4);
  EXPECT_EQ(corpus.tokens(), 10);
  EXPECT_EQ(corpus.document_length(1), 0);
  EXPECT_EQ(corpus.document_length(2), 5);
  EXPECT_THAT(corpus.documents_of(Split::kTrain), ElementsAre(0, 1));
  EXPECT_EQ(corpus.tokens_of(Split::kTrain), 3);
  EXPECT_EQ(corpus.split(3), Split::kTest);
  EXPECT_EQ(corpus.tokens(2, 0, 5), (Ids{8, 9, 10, 11, 12}));
  EXPECT_EQ(corpus.tokens(2, 3, 2), (Ids{11, 12}));
  EXPECT_TRUE(corpus.tokens(1, 0, 0).empty());
  EXPECT_FALSE(corpus.has_labels());
  EXPECT_EQ(corpus.vocabulary().size(), 55);
  EXPECT_EQ(corpus.special().mask, 4);
  EXPECT_EQ(corpus.tokenizer().name(), "name");
  EXPECT_NE(corpus.digest(), 0U);
  for (const auto& [document, first, count] :
       std::vector<std::array<std::int64_t, 3>>{{2, 4, 2}, {2, -1, 1}, {4, 0, 0}, {-1, 0, 0}}) {
    EXPECT_THAT(error_of(ExitCode::kData, [&] { corpus.tokens(document, first, count); }), HasSubstr("c.h5: asked for tokens"));
  }
  EXPECT_THAT(error_of(ExitCode::kData, [&] { corpus.labels(0, 0, 1); }), HasSubstr("no labels"));
}

TEST_F(CorpusTest, ACorpusMadeElsewhereHasADigestOfItsContents) {
  const auto unsealed = [&](const std::string& name, const std::vector<std::int64_t>& lengths, const std::vector<Split>& splits,
                            std::int32_t symbols) {
    write_corpus("sealed.h5", lengths, splits, symbols);
    // Without the block that holds the seal it is a plain HDF5 file.
    return Corpus(write(name, read("sealed.h5").substr(4096))).digest();
  };
  const std::vector<Split> splits{Split::kTrain, Split::kValid};
  const std::uint64_t digest = unsealed("a.h5", {30, 20}, splits, 50);
  EXPECT_NE(digest, 0U);
  EXPECT_EQ(unsealed("b.h5", {30, 20}, splits, 50), digest);
  EXPECT_NE(unsealed("c.h5", {20, 30}, splits, 50), digest);
  EXPECT_NE(unsealed("d.h5", {30, 20}, {Split::kValid, Split::kTrain}, 50), digest);
  EXPECT_NE(unsealed("e.h5", {30, 20}, splits, 51), digest);
}

TEST_F(CorpusTest, LargeDocumentsAndVocabularies) {
  std::vector<std::string> names;
  for (int i = 0; i < 70000; ++i) names.push_back("s" + std::to_string(i));
  const NameTokenizer tokenizer(Vocabulary::made(names, {}));
  Ids large(200000);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::int32_t>(i % 70005);
  {
    CorpusWriter writer(path("wide.h5"), tokenizer, true);
    writer.add(Ids{70004}, Ids{-1});
    writer.add(large, large);
    writer.publish({Split::kTrain, Split::kTrain}, "{}", "{}");
  }
  const Corpus corpus(path("wide.h5"));
  EXPECT_EQ(h5::Reader(path("wide.h5")).info("/tokens").element_bytes, 4U);
  EXPECT_EQ(corpus.tokens(0, 0, 1), (Ids{70004}));
  EXPECT_EQ(corpus.tokens(1, 0, 200000), large);
  EXPECT_EQ(corpus.labels(0, 0, 1), (Ids{-1}));
  EXPECT_EQ(corpus.labels(1, 70000, 2), (Ids{70000, 70001}));
  write_corpus("narrow.h5", {3}, {Split::kTrain});
  EXPECT_EQ(h5::Reader(path("narrow.h5")).info("/tokens").element_bytes, 2U);
}

TEST_F(CorpusTest, VocabularyWithControlCharactersComesBack) {
  const CharTokenizer tokenizer(Vocabulary::made({"\0"s, "\n", "é", " "}, {}));
  {
    CorpusWriter writer(path("c.h5"), tokenizer, false);
    writer.add(tokenizer.encode("\0é \n"s));
    writer.publish({Split::kTest}, "{}", "{}");
  }
  const Corpus corpus(path("c.h5"));
  EXPECT_EQ(corpus.tokenizer().decode(corpus.tokens(0, 0, 4)), "\0é \n"s);
  EXPECT_EQ(Vocabulary::from_file(path("c.h5"), {}).tokens(), tokenizer.vocabulary().tokens());
}

TEST_F(CorpusTest, UnigramEntropy) {
  // 50 symbols, each as often as the others.
  const Corpus corpus(write_corpus("c.h5", {100, 7}, {Split::kTrain, Split::kTest}));
  EXPECT_NEAR(corpus.unigram_entropy(Split::kTrain), std::log(50.0), 1e-12);
  EXPECT_NEAR(corpus.unigram_entropy(Split::kTest), std::log(7.0), 1e-12);
  EXPECT_EQ(corpus.unigram_entropy(Split::kValid), 0);
}

struct Broken {
  std::string name = "broken";
  std::vector<std::uint64_t> offsets = {0, 2, 3};
  std::vector<std::uint8_t> splits = {0, 1};
  std::vector<std::uint16_t> tokens = {5, 6, 7};
  std::int64_t mask_id = 4;
  std::int64_t version = 1;
  std::string kind = "corpus";
};

void write_broken(const std::string& path, const Broken& broken) {
  h5::Writer writer(path);
  const auto length = [](const auto& values) { return std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())}; };
  writer.write<std::uint16_t>("/tokens", broken.tokens, length(broken.tokens));
  writer.write<std::uint64_t>("/offsets", broken.offsets, length(broken.offsets));
  writer.write<std::uint8_t>("/splits", broken.splits, length(broken.splits));
  writer.write_strings("/vocab", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"});
  writer.attribute("/", "kind", broken.kind);
  writer.attribute("/", "version", broken.version);
  writer.attribute("/", "tokenizer", std::string("char"));
  std::int64_t id = 0;
  for (const char* name : {"pad_id", "unk_id", "cls_id", "sep_id"}) writer.attribute("/", name, id++);
  writer.attribute("/", "mask_id", broken.mask_id);
  writer.publish();
}

TEST_F(CorpusTest, InconsistentFilesAreRefused) {
  write_broken(path("good.h5"), {});
  EXPECT_EQ(Corpus(path("good.h5")).tokens(1, 0, 1), (Ids{7}));
  const std::vector<std::pair<Broken, std::string>> cases = {
      {{.name = "falling", .offsets = {0, 4, 3}}, "/offsets does not rise"},
      {{.name = "begins", .offsets = {1, 2, 3}}, "/offsets does not rise"},
      {{.name = "count", .offsets = {0, 3}}, "/offsets does not rise"},
      {{.name = "none", .offsets = {}, .splits = {}}, "/offsets does not rise"},
      {{.name = "end", .offsets = {0, 2, 4}}, "/tokens has 3 elements, /offsets ends at 4"},
      {{.name = "split", .splits = {0, 3}}, "/splits holds 3"},
      {{.name = "mask", .mask_id = 8}, "mask_id = 8 is not a row"},
      {{.name = "version", .version = 2}, "version 2"},
      {{.name = "kind", .kind = "model"}, "not a corpus"},
  };
  for (const auto& [broken, message] : cases) {
    write_broken(path(broken.name), broken);
    EXPECT_THAT(error_of(ExitCode::kData, [&] { Corpus corpus(path(broken.name)); }), HasSubstr(message)) << broken.name;
  }
  write_broken(path("token.h5"), {.tokens = {5, 6, 8}});
  const Corpus corpus(path("token.h5"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { corpus.tokens(1, 0, 1); }),
              HasSubstr("holds token 8, the vocabulary has 8 rows"));
}

TEST_F(CorpusTest, SplitNames) {
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) EXPECT_EQ(parse_split(name_of(split)), split);
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { parse_split("dev"); }), HasSubstr("known: train, valid, test"));
}

}  // namespace
}  // namespace gau
