// Text reading: line ends, broken UTF-8, formats, packed files, and what each fault is called.
#include "data/text_reader.h"

#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include "data/spool.h"
#include "data/utf8.h"
#include "tests/data/helpers.h"

namespace gau {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

struct Result {
  Texts documents;
  TextStatistics statistics;
};

class TextReaderTest : public DataTest {
 protected:
  Result read_all(const std::string& file, const TextOptions& options = {}) const {
    TextReader reader(path(file), file, options);
    Result result;
    for (std::string document; reader.next(document);) result.documents.push_back(document);
    result.statistics = reader.statistics();
    return result;
  }
  std::string failure(const std::string& file, const TextOptions& options) const {
    return error_of(ExitCode::kData, [&] { read_all(file, options); });
  }
};

TEST_F(TextReaderTest, LineEndsGiveTheSameDocuments) {
  write("lf", "one\ntwo\n\nthree\n");
  write("crlf", "one\r\ntwo\r\n\r\nthree\r\n");
  write("cr", "one\rtwo\r\rthree");
  for (const char* file : {"lf", "crlf", "cr"}) {
    const Result result = read_all(file);
    EXPECT_THAT(result.documents, ElementsAre("one", "two", "three")) << file;
    EXPECT_EQ(result.statistics.empty, 1) << file;
    EXPECT_EQ(read_all(file, {.format = TextFormat::kDocument}).documents, (Texts{"one\ntwo\n\nthree"})) << file;
  }
  EXPECT_EQ(read_all("lf").statistics.carriage_returns, 0);
  EXPECT_EQ(read_all("crlf").statistics.carriage_returns, 4);
  EXPECT_EQ(read_all("crlf").statistics.lone_returns, 0);
  EXPECT_EQ(read_all("cr").statistics.lone_returns, 3);
}

TEST_F(TextReaderTest, LineEndsAcrossBuffers) {
  // The reader's buffer is 2^18 bytes: a CRLF, and a line without an end, lie across its border.
  const std::string head(262143, 'a');
  write("t", head + "\r\nb" + std::string(600000, 'c') + "\r\nd");
  const Result result = read_all("t");
  EXPECT_EQ(result.documents, (Texts{head, "b" + std::string(600000, 'c'), "d"}));
  EXPECT_EQ(result.statistics.lone_returns, 0);
}

TEST_F(TextReaderTest, InvalidBytesArePlacedAndMended) {
  write("bad.txt", "good one\nbad \x92 byte\nnul \0 here\ngood two\n"s);
  const Result replaced = read_all("bad.txt");
  EXPECT_THAT(replaced.documents, ElementsAre("good one", "bad \xEF\xBF\xBD byte", "nul \0 here"s, "good two"));
  EXPECT_EQ(replaced.statistics.invalid_bytes, 1);
  EXPECT_THAT(replaced.statistics.invalid_places, ElementsAre("bad.txt:2: byte 5: 0x92"));
  EXPECT_EQ(read_all("bad.txt", {.on_invalid = OnInvalid::kSkip}).documents[1], "bad  byte");
  EXPECT_THAT(failure("bad.txt", {.on_invalid = OnInvalid::kError}), HasSubstr("bad.txt:2: byte 5: 0x92: not UTF-8"));
}

TEST(Utf8, EveryFormOfDamageIsFound) {
  // Lone continuation, overlong forms, a surrogate, above U+10FFFF, cut short, bytes that never occur.
  for (const char* text : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\xAF", "\xF0\x80\x80\xAF", "\xED\xA0\x80",
                           "\xF4\x90\x80\x80", "\xE4\xB8", "\xF0\x9F\x98", "\xF5\x80\x80\x80", "\xFE", "\xFF",
                           "\xC3"
                           "a"}) {
    EXPECT_FALSE(code_point_at(text, 0).valid) << text;
  }
  for (const char32_t point : {0x0, 0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x20000, 0x10FFFF}) {
    std::string text;
    append_utf8(point, text);
    const CodePoint read = code_point_at(text, 0);
    EXPECT_TRUE(read.valid);
    EXPECT_EQ(read.value, point);
    EXPECT_EQ(read.bytes, text.size());
  }
}

TEST_F(TextReaderTest, ByteOrderMarks) {
  write("utf8", "\xEF\xBB\xBFone\ntwo");
  EXPECT_THAT(read_all("utf8").documents, ElementsAre("one", "two"));
  write("utf16", "\xFF\xFEo\0n\0"s);
  EXPECT_THAT(failure("utf16", {}), HasSubstr("UTF-16"));
  write("short", "a");
  EXPECT_THAT(read_all("short").documents, ElementsAre("a"));
}

TEST_F(TextReaderTest, EmptyAndBlankFiles) {
  write("nothing", "");
  write("blank", "\n \t\n\n");
  EXPECT_TRUE(read_all("nothing").documents.empty());
  EXPECT_EQ(read_all("blank").statistics.empty, 3);
  EXPECT_TRUE(read_all("blank", {.format = TextFormat::kDocument}).documents.empty());
  EXPECT_TRUE(read_all("nothing", {.format = TextFormat::kJsonl}).documents.empty());
  EXPECT_TRUE(read_all("nothing", {.format = TextFormat::kFasta}).documents.empty());
}

TEST_F(TextReaderTest, JsonLinesFaultsAreNamedByLine) {
  const TextOptions options{.format = TextFormat::kJsonl};
  const auto message = [&](const std::string& line) {
    write("data.jsonl", "{\"text\":\"ok\"}\n" + line + "\n");
    return failure("data.jsonl", options);
  };
  EXPECT_THAT(message("{\"content\":\"x\"}"), HasSubstr("data.jsonl:2: no field \"text\" (has: content); use --field content"));
  EXPECT_THAT(message("{\"a\":1,\"body\":\"x\"}"), HasSubstr("(has: a, body); use --field body"));
  EXPECT_THAT(message("{}"), HasSubstr("data.jsonl:2: no field \"text\" (the object is empty)"));
  EXPECT_THAT(message("{\"text\":null}"), HasSubstr("field \"text\" is null, not a string"));
  EXPECT_THAT(message("{\"text\":[\"a\"]}"), HasSubstr("field \"text\" is array"));
  EXPECT_THAT(message("{\"text\":5}"), HasSubstr("field \"text\" is number"));
  EXPECT_THAT(message("not json"), HasSubstr("data.jsonl:2: not JSON"));
  EXPECT_THAT(message("{"), HasSubstr("spread over lines"));
  EXPECT_THAT(message("[ {\"text\":\"a\"},"), HasSubstr("data.jsonl:2: a JSON array"));
  EXPECT_THAT(message("3"), HasSubstr("not an object"));
}

TEST_F(TextReaderTest, JsonLinesBadRecordsAreCountedByReason) {
  write("data.jsonl",
        "{\"text\":\"\"}\n{\"text\":\"ok\\u0000\\u00e9\"}\n{\"content\":\"x\"}\n{\"text\":null}\n{\"content\":\"y\"}\nnot "
        "json\n\n{\"text\":\"last\"}");
  const Result result = read_all("data.jsonl", {.format = TextFormat::kJsonl, .skip_bad = true});
  EXPECT_THAT(result.documents, ElementsAre("ok\0\xC3\xA9"s, "last"));
  EXPECT_EQ(result.statistics.empty, 2);
  EXPECT_EQ(result.statistics.skipped,
            (std::map<std::string, std::int64_t>{{"no field", 2}, {"field is null", 1}, {"not JSON", 1}}));
}

TEST_F(TextReaderTest, FastaRecords) {
  write("a.fa", ">one first\nACGT\nAC\n\n>two\n>three\nGG\r\nTT");
  const Result result = read_all("a.fa", {.format = TextFormat::kFasta});
  EXPECT_THAT(result.documents, ElementsAre("ACGTAC", "GGTT"));
  EXPECT_EQ(result.statistics.empty, 1);
  write("b.fa", "ACGT\n>one\nAC\n");
  EXPECT_THAT(failure("b.fa", {.format = TextFormat::kFasta}), HasSubstr("b.fa:1: not FASTA"));
}

std::string gzipped(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd_packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  // With the checksum that the zstd program adds.
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

TEST_F(TextReaderTest, PackedFilesAreUnpackedAndDamageIsFound) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i * 7919) + " line\n";
  write("plain", text);
  const Texts expected = read_all("plain").documents;
  for (const auto pack : {gzipped, zstd_packed}) {
    const std::string packed = pack(text);
    write("packed", packed);
    EXPECT_EQ(read_all("packed").documents, expected);
    // Two streams one after another are one text.
    write("two", pack("first\n") + pack("second\n"));
    EXPECT_THAT(read_all("two").documents, ElementsAre("first", "second"));
    write("cut", packed.substr(0, packed.size() / 2));
    EXPECT_THAT(failure("cut", {}), HasSubstr("cut short"));
    write("none", pack(""));
    EXPECT_TRUE(read_all("none").documents.empty());
    std::string damaged = packed;
    for (std::size_t at = 1000; at < 1020; ++at) damaged[at] = static_cast<char>(damaged[at] + 13);
    write("damaged", damaged);
    EXPECT_THAT(failure("damaged", {}), ::testing::AnyOf(HasSubstr("damaged: damaged"), HasSubstr("cut short")));
  }
}

TEST_F(TextReaderTest, UnreadableInputs) {
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { read_all("absent"); }), HasSubstr("absent: cannot be opened: No such file"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { TextReader reader(directory_, "dir", {}); }), HasSubstr("directory"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { parse_text_format("csv"); }), HasSubstr("known: lines, document, jsonl, fasta"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { parse_on_invalid("drop"); }), HasSubstr("known: replace, skip, error"));
}

TEST_F(TextReaderTest, PipesCanBeReadTwice) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "one\ntwo\n", 8), 8);
  close(ends[1]);
  const Spool spool("/proc/self/fd/" + std::to_string(ends[0]));
  close(ends[0]);
  for (int pass = 0; pass < 2; ++pass) {
    TextReader reader(spool.path(), spool.name(), {});
    std::string document;
    EXPECT_TRUE(reader.next(document));
    EXPECT_EQ(document, "one");
  }
  const Spool regular(write("file", "text"));
  EXPECT_EQ(regular.path(), path("file"));
}

}  // namespace
}  // namespace gau
