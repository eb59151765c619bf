// Vocabularies and tokenizers.
#include "data/tokenizer.h"

#include <gmock/gmock.h>

#include "tests/data/helpers.h"

namespace gau {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

CharTokenizer char_tokenizer(const std::string& text, std::int64_t size = 0, std::int64_t min_count = 1) {
  VocabularyBuilder builder;
  builder.add(text);
  return CharTokenizer(builder.build(size, min_count, {}));
}

class TokenizerTest : public DataTest {};

TEST_F(TokenizerTest, CharVocabularyIsOrderedByCountThenCodePoint) {
  const CharTokenizer tokenizer = char_tokenizer("bbb\U00020000\U00020000aac");
  EXPECT_THAT(tokenizer.vocabulary().tokens(),
              ElementsAre("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "b", "a", "\U00020000", "c"));
  EXPECT_EQ(tokenizer.encode("ab\U00020000x"), (Ids{6, 5, 7, 1}));
  EXPECT_EQ(char_tokenizer("bbbaac", 7).vocabulary().size(), 7);
  EXPECT_EQ(char_tokenizer("bbbaac", 0, 2).vocabulary().size(), 7);
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { char_tokenizer("a", 5); }), HasSubstr("--vocab-size 5"));
}

TEST_F(TokenizerTest, CharsComeBack) {
  // A zero-width space, a family joined by zero-width joiners, NUL, CR and an ideograph outside of the basic plane are tokens.
  const std::string text = "a\u200Bb \U0001F468\u200D\U0001F469\u200D\U0001F467 \0\r\n\U00020000"s;
  const CharTokenizer tokenizer = char_tokenizer(text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.encode(text).size(), 14U);
  // Only what is unknown is [UNK].
  const CharTokenizer small = char_tokenizer("helo");
  const Ids ids = small.encode("hello\U0001F600");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(small.encode("h\x92"), (Ids{small.encode("h")[0], 1}));
}

TEST_F(TokenizerTest, BytesComeBack) {
  const ByteTokenizer tokenizer(ByteTokenizer::make_vocabulary({}));
  EXPECT_EQ(tokenizer.vocabulary().size(), 261);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const Ids ids = tokenizer.encode(all);
  EXPECT_EQ(ids.front(), 5);
  EXPECT_EQ(ids.back(), 260);
  EXPECT_EQ(tokenizer.decode(ids), all);
  EXPECT_EQ(tokenizer.vocabulary().token(5 + 0x41), "<0x41>");
}

TEST_F(TokenizerTest, SpecialTextIsRecognisedOnlyWhenAsked) {
  const CharTokenizer tokenizer = char_tokenizer("ab[MASK]");
  EXPECT_EQ(tokenizer.encode("[MASK]").size(), 6U);
  const Ids a = tokenizer.encode("a");
  EXPECT_EQ(tokenizer.encode("a[MASK][MASK]a[CLS]", true), (Ids{a[0], 4, 4, a[0], 2}));
  EXPECT_EQ(tokenizer.encode("[MASK", true).size(), 5U);
  EXPECT_EQ(tokenizer.decode(Ids{a[0], 4}), "a[MASK]");
}

TEST_F(TokenizerTest, NamesBetweenBlanks) {
  const NameTokenizer tokenizer(Vocabulary::made({"s0", "s1"}, {}));
  EXPECT_EQ(tokenizer.encode("  s1 s0\ns2 "), (Ids{6, 5, 1}));
  EXPECT_EQ(tokenizer.encode("s1 [MASK] s0", true), (Ids{6, 4, 5}));
  EXPECT_EQ(tokenizer.decode(Ids{6, 5}), "s1 s0");
}

TEST_F(TokenizerTest, VocabularyFiles) {
  write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\n\r\r\nb\r\n");
  const Vocabulary vocabulary = Vocabulary::from_file(path("vocab.txt"), {});
  EXPECT_THAT(vocabulary.tokens(), ElementsAre("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\r", "b"));
  write("moved.txt", "a\n<mask>\n[SEP]\n[UNK]\n[PAD]\n[CLS]\n");
  SpecialNames names;
  names.mask = "<mask>";
  const Vocabulary moved = Vocabulary::from_file(path("moved.txt"), names);
  EXPECT_EQ(moved.special().mask, 1);
  EXPECT_EQ(moved.special().pad, 4);
  EXPECT_EQ(CharTokenizer(moved).encode("a?"), (Ids{0, 3}));
}

TEST_F(TokenizerTest, MissingSpecialsAreNamedAtOnce) {
  write("vocab.txt", "[UNK]\n[SEP]\na\n");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { Vocabulary::from_file(path("vocab.txt"), {}); }),
              AllOf(HasSubstr("vocab.txt"), HasSubstr("[PAD], [CLS], [MASK]")));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { Vocabulary::from_file(path("absent"), {}); }),
              HasSubstr("absent: cannot be opened"));
}

TEST_F(TokenizerTest, DuplicateRowsWarnAndTheFirstWins) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\nc\n");
  ::testing::internal::CaptureStderr();
  const CharTokenizer tokenizer(Vocabulary::from_file(path("vocab.txt"), {}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("\"a\" is on rows 5 and 7"));
  EXPECT_EQ(tokenizer.vocabulary().size(), 9);
  EXPECT_EQ(tokenizer.encode("ac"), (Ids{5, 8}));
}

TEST_F(TokenizerTest, UnknownTokenizersAreRefused) {
  for (const char* name : {"wordpiece", "sentencepiece"}) {
    EXPECT_THAT(error_of(ExitCode::kUsage, [&] { check_tokenizer_name(name); }),
                HasSubstr("not built in yet; known: char, byte"));
  }
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { check_tokenizer_name("chars"); }), HasSubstr("unknown"));
  EXPECT_THAT(error_of(ExitCode::kData, [] { make_tokenizer("byte", Vocabulary::made({"a"}, {})); }), HasSubstr("<0x00>"));
}

TEST_F(TokenizerTest, WordParts) {
  const CharTokenizer tokenizer = char_tokenizer("aé9 ,中\u0301");
  const auto part = [&](const char* text) {
    return tokenizer.word_parts()[static_cast<std::size_t>(tokenizer.encode(text)[0])];
  };
  EXPECT_EQ(part("a"), WordPart::kLetter);
  EXPECT_EQ(part("é"), WordPart::kLetter);
  EXPECT_EQ(part("9"), WordPart::kLetter);
  EXPECT_EQ(part(" "), WordPart::kAlone);
  EXPECT_EQ(part(","), WordPart::kAlone);
  EXPECT_EQ(part("中"), WordPart::kAlone);
  EXPECT_EQ(part("\u0301"), WordPart::kPiece);
  EXPECT_EQ(tokenizer.word_parts()[4], WordPart::kAlone);
}

}  // namespace
}  // namespace gau
