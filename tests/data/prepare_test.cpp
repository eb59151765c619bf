// prepare: from text files to a corpus, its report and its refusals; splits.
#include "data/prepare.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/data/helpers.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PrepareTest : public DataTest {
 protected:
  PrepareOptions options(const std::vector<std::string>& files) const {
    PrepareOptions result;
    for (const std::string& file : files) result.inputs.push_back(path(file));
    result.output = path("out.h5");
    return result;
  }
  std::string failure(ExitCode code, const PrepareOptions& options) const {
    std::string text = error_of(code, [&] { prepare(options); });
    EXPECT_FALSE(fs::exists(path("out.h5")));
    return text;
  }
};

TEST_F(PrepareTest, AText) {
  PrepareOptions wanted;
  wanted.inputs = {GAU_SOURCE_DIR "/tests/data/sample.txt"};
  wanted.output = path("out.h5");
  const PrepareReport report = prepare(wanted);
  EXPECT_EQ(report.documents, 319);
  EXPECT_EQ(report.tokens, 37570 - 319);
  EXPECT_EQ(report.files[0].unknown, 0);
  EXPECT_EQ(report.splits[0].documents, 319 - 32);
  EXPECT_EQ(report.splits[1].documents, 16);
  EXPECT_EQ(report.splits[2].documents, 16);
  const Corpus corpus(path("out.h5"));
  EXPECT_EQ(corpus.digest(), report.digest);
  EXPECT_EQ(corpus.vocabulary().size(), report.vocab_size);
  EXPECT_EQ(corpus.tokenizer().decode(corpus.tokens(0, 0, corpus.document_length(0))),
            "In the beginning God created the heaven and the earth.");
  EXPECT_EQ(corpus.vocabulary().token(5), " ");
  EXPECT_EQ(corpus.tokens_of(Split::kValid), report.splits[1].tokens);
  EXPECT_NEAR(report.unigram_entropy, 2.9, 0.1);
}

TEST_F(PrepareTest, TheSameTextGivesTheSameBytes) {
  write("a.txt", "one\ntwo\nthree\n");
  write("b.txt", "one\r\ntwo\r\nthree");
  prepare(options({"a.txt"}));
  const std::string first = read("out.h5");
  prepare(options({"b.txt"}));
  EXPECT_EQ(read("out.h5"), first);
  PrepareOptions seeded = options({"a.txt"});
  seeded.seed = 1;
  prepare(seeded);
  EXPECT_NE(read("out.h5"), first);
}

TEST_F(PrepareTest, AGivenVocabulary) {
  write("a.txt", "abc\nabd\n");
  prepare(options({"a.txt"}));
  fs::rename(path("out.h5"), path("first.h5"));
  write("b.txt", "xa\nbx\n");
  PrepareOptions second = options({"b.txt"});
  second.vocab_file = path("first.h5");
  ::testing::internal::CaptureStderr();
  const PrepareReport report = prepare(second);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("b.txt: 50.0 % of its tokens are unknown"));
  EXPECT_EQ(report.files[0].unknown, 2);
  const Corpus first(path("first.h5"));
  const Corpus corpus(path("out.h5"));
  EXPECT_EQ(corpus.vocabulary().tokens(), first.vocabulary().tokens());
  EXPECT_EQ(corpus.tokens(0, 0, 2), (std::vector<std::int32_t>{1, first.vocabulary().find("a")}));
}

TEST_F(PrepareTest, BytesNeedNoVocabulary) {
  write("a.txt", "h\xC3\xA9\n");
  PrepareOptions wanted = options({"a.txt"});
  wanted.tokenizer = "byte";
  EXPECT_EQ(prepare(wanted).vocab_size, 261);
  EXPECT_EQ(Corpus(path("out.h5")).tokens(0, 0, 3), (std::vector<std::int32_t>{5 + 'h', 5 + 0xC3, 5 + 0xA9}));
  wanted.min_count = 2;
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { prepare(wanted); }), HasSubstr("--tokenizer byte"));
}

TEST_F(PrepareTest, FaultsOfTheTextAreReported) {
  write("bad.txt", "same\nsame\nb\x92\nsame\n");
  write("none.txt", "");
  ::testing::internal::CaptureStderr();
  const PrepareReport report = prepare(options({"bad.txt", "none.txt"}));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, AllOf(HasSubstr("bad.txt:3: byte 2: 0x92"), HasSubstr("1 bytes are not UTF-8"),
                              HasSubstr("none.txt: no documents"), HasSubstr("2 of 4 documents repeat an earlier one")));
  EXPECT_EQ(report.duplicates, 2);
  EXPECT_EQ(report.files[0].text.invalid_bytes, 1);
}

TEST_F(PrepareTest, NothingUsableIsAnErrorWithTheCounts) {
  write("blank.txt", "\n\n\n");
  write("none.txt", "");
  EXPECT_THAT(failure(ExitCode::kData, options({"blank.txt", "none.txt"})),
              HasSubstr("2 files, 3 bytes, 0 documents, 3 empty ones"));
  write("bad.jsonl", "{}\n3\n");
  PrepareOptions json = options({"bad.jsonl"});
  json.text = {.format = TextFormat::kJsonl, .skip_bad = true};
  EXPECT_THAT(failure(ExitCode::kData, json), HasSubstr("2 records left out"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 3);
}

TEST_F(PrepareTest, OptionsThatDoNotFitAreRefused) {
  write("a.txt", "text\n");
  PrepareOptions same = options({"a.txt"});
  same.output = directory_ + "/./a.txt";
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { prepare(same); }), HasSubstr("would be overwritten"));
  EXPECT_EQ(read("a.txt"), "text\n");
  EXPECT_THAT(failure(ExitCode::kUsage, options({})), HasSubstr("no text was named"));
  PrepareOptions wanted = options({"a.txt"});
  wanted.tokenizer = "wordpiece";
  EXPECT_THAT(failure(ExitCode::kUsage, wanted), HasSubstr("not built in yet"));
  wanted = options({"a.txt"});
  wanted.fractions.valid = 0.7;
  wanted.fractions.test = 0.7;
  EXPECT_THAT(failure(ExitCode::kUsage, wanted), HasSubstr("--valid 0.7 --test 0.7"));
  wanted = options({"a.txt"});
  wanted.vocab_file = path("a.txt");
  wanted.vocab_size = 100;
  EXPECT_THAT(failure(ExitCode::kUsage, wanted), HasSubstr("leave out one"));
  wanted = options({"a.txt"});
  wanted.output = path("none/out.h5");
  EXPECT_THAT(failure(ExitCode::kIo, wanted), HasSubstr("does not exist"));
  EXPECT_THAT(failure(ExitCode::kIo, options({"absent.txt"})), HasSubstr("absent.txt: cannot be opened"));
}

TEST_F(PrepareTest, CheckWritesNothing) {
  write("a.txt", "one\ntwo\n");
  PrepareOptions wanted = options({"a.txt"});
  wanted.output.clear();
  wanted.check_only = true;
  EXPECT_EQ(prepare(wanted).tokens, 6);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

std::array<std::int64_t, 3> counts(const std::vector<Split>& splits) {
  std::array<std::int64_t, 3> result{};
  for (const Split split : splits) ++result[static_cast<std::size_t>(split)];
  return result;
}

TEST(Splits, FractionsOfTheDocuments) {
  using Counts = std::array<std::int64_t, 3>;
  EXPECT_EQ(counts(assign_splits(1000, {0.05, 0.1}, 0)), (Counts{850, 50, 100}));
  EXPECT_EQ(counts(assign_splits(1000, {0, 0}, 0)), (Counts{1000, 0, 0}));
  EXPECT_EQ(counts(assign_splits(5, {0.01, 0.01}, 0)), (Counts{3, 1, 1}));
  EXPECT_EQ(counts(assign_splits(3, {0.05, 0.05}, 0)), (Counts{1, 1, 1}));
  EXPECT_EQ(counts(assign_splits(2, {0.05, 0.05}, 0)), (Counts{1, 1, 0}));
  EXPECT_EQ(counts(assign_splits(1, {0.05, 0.05}, 0)), (Counts{1, 0, 0}));
  EXPECT_EQ(counts(assign_splits(0, {0.05, 0.05}, 0)), (Counts{0, 0, 0}));
  EXPECT_EQ(counts(assign_splits(3, {0.9, 0.05}, 0)), (Counts{1, 2, 0}));
  EXPECT_EQ(counts(assign_splits(7, {0, 1}, 0)), (Counts{0, 0, 7}));
  EXPECT_EQ(counts(assign_splits(7, {0.5, 0.5}, 0)), (Counts{0, 4, 3}));
  EXPECT_EQ(assign_splits(100, {0.2, 0.2}, 1), assign_splits(100, {0.2, 0.2}, 1));
  EXPECT_NE(assign_splits(100, {0.2, 0.2}, 1), assign_splits(100, {0.2, 0.2}, 2));
}

}  // namespace
}  // namespace gau
