// Tokenizers of code points, bytes and names.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/utf8.h"
#include "framework/error.h"

namespace gau {
namespace {

bool in_range(char32_t point, char32_t first, char32_t last) { return point >= first && point <= last; }

/// Letters of scripts that put blanks between words, and digits; ideographs and kana stand alone.
bool is_letter(char32_t point) {
  if (point < 0x80) return in_range(point, '0', '9') || in_range(point, 'A', 'Z') || in_range(point, 'a', 'z');
  const bool multiplication_signs = point == 0xD7 || point == 0xF7;
  return (in_range(point, 0xC0, 0x1FFF) && !multiplication_signs) || in_range(point, 0x2C00, 0x2DFF) ||
         in_range(point, 0xA640, 0xABFF) || in_range(point, 0xAC00, 0xD7AF);
}

/// Marks that change the sign before them: combining accents, the zero-width joiner, variation selectors, skin tones.
bool is_mark(char32_t point) {
  return in_range(point, 0x300, 0x36F) || point == 0x200D || in_range(point, 0xFE00, 0xFE0F) ||
         in_range(point, 0x1F3FB, 0x1F3FF);
}

WordPart word_part_of(char32_t point) {
  if (is_mark(point)) return WordPart::kPiece;
  return is_letter(point) ? WordPart::kLetter : WordPart::kAlone;
}

/// Bytes of UTF-8: what follows a lead byte belongs to it, and the leads of letters join. Leads from 0xE3 on begin ideographs,
/// kana and symbols almost only.
WordPart word_part_of_byte(std::uint32_t byte) {
  if (byte >= 0x80 && byte < 0xC0) return WordPart::kPiece;
  if (byte >= 0xC0) return byte < 0xE3 ? WordPart::kLetter : WordPart::kAlone;
  return word_part_of(byte);
}

std::string byte_name(std::uint32_t byte) { return fmt::format("<0x{:02X}>", byte); }

constexpr std::uint32_t kBytes = 256;

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool specials) const {
  std::vector<std::int32_t> ids;
  if (!specials) {
    encode_text(text, ids);
    return ids;
  }
  const std::array<std::string, 5> names = vocabulary_.special_texts();
  const auto special = vocabulary_.special().all();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto name = std::find_if(names.begin(), names.end(),
                                   [&](const std::string& n) { return !n.empty() && text.substr(at).starts_with(n); });
    if (name == names.end()) {
      ++at;
      continue;
    }
    encode_text(text.substr(begin, at - begin), ids);
    ids.push_back(special[static_cast<std::size_t>(name - names.begin())]);
    at += name->size();
    begin = at;
  }
  encode_text(text.substr(begin), ids);
  return ids;
}

CharTokenizer::CharTokenizer(Vocabulary rows) : Tokenizer(std::move(rows)) {
  word_parts_.assign(static_cast<std::size_t>(vocabulary().size()), WordPart::kAlone);
  for (std::int32_t id = 0; id < vocabulary().size(); ++id) {
    const std::string& token = vocabulary().token(id);
    if (token.empty()) continue;
    const CodePoint point = code_point_at(token, 0);
    if (!point.valid || point.bytes != token.size() || vocabulary().find(token) != id) continue;
    if (point.value >= ids_.size()) ids_.resize(point.value + 1, vocabulary().special().unk);
    ids_[point.value] = id;
    word_parts_[static_cast<std::size_t>(id)] = word_part_of(point.value);
  }
  check(!ids_.empty(), ExitCode::kData, "the vocabulary has no row of a single character, which the tokenizer char needs");
}

void CharTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::int32_t unknown = vocabulary().special().unk;
  for_each_code_point(text, [&](char32_t point) { ids.push_back(point < ids_.size() ? ids_[point] : unknown); });
}

std::string CharTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += vocabulary().token(id);
  return text;
}

ByteTokenizer::ByteTokenizer(Vocabulary rows) : Tokenizer(std::move(rows)), first_(vocabulary().find(byte_name(0))) {
  word_parts_.assign(static_cast<std::size_t>(vocabulary().size()), WordPart::kAlone);
  for (std::uint32_t byte = 0; byte < kBytes; ++byte) {
    const std::int32_t id = first_ + static_cast<std::int32_t>(byte);
    check(first_ >= 0 && vocabulary().find(byte_name(byte)) == id, ExitCode::kData,
          "the vocabulary has no rows <0x00> to <0xFF> in order, which the tokenizer byte needs");
    word_parts_[static_cast<std::size_t>(id)] = word_part_of_byte(byte);
  }
}

Vocabulary ByteTokenizer::make_vocabulary(const SpecialNames& names) {
  std::vector<std::string> rows;
  for (std::uint32_t byte = 0; byte < kBytes; ++byte) rows.push_back(byte_name(byte));
  return Vocabulary::made(rows, names);
}

void ByteTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (const char byte : text) ids.push_back(first_ + static_cast<unsigned char>(byte));
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::int32_t byte = id - first_;
    if (byte >= 0 && byte < static_cast<std::int32_t>(kBytes)) {
      text.push_back(static_cast<char>(byte));
    } else {
      text += vocabulary().token(id);
    }
  }
  return text;
}

NameTokenizer::NameTokenizer(Vocabulary rows) : Tokenizer(std::move(rows)) {
  word_parts_.assign(static_cast<std::size_t>(vocabulary().size()), WordPart::kAlone);
}

void NameTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  constexpr std::string_view kBlanks = " \t\r\n";
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    const std::int32_t id = vocabulary().find(text.substr(begin, end - begin));
    ids.push_back(id < 0 ? vocabulary().special().unk : id);
    begin = text.find_first_not_of(kBlanks, end);
  }
}

std::string NameTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : " ") + vocabulary().token(id);
  return text;
}

void check_tokenizer_name(const std::string& name) {
  check(name != "wordpiece" && name != "sentencepiece", ExitCode::kUsage, "--tokenizer {}: not built in yet; known: char, byte",
        name);
  check(name == "char" || name == "byte" || name == "name", ExitCode::kUsage, "--tokenizer {}: unknown; known: char, byte",
        name);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, Vocabulary vocabulary) {
  check_tokenizer_name(name);
  if (name == "char") return std::make_unique<CharTokenizer>(std::move(vocabulary));
  if (name == "byte") return std::make_unique<ByteTokenizer>(std::move(vocabulary));
  return std::make_unique<NameTokenizer>(std::move(vocabulary));
}

void VocabularyBuilder::add(std::string_view text) {
  for_each_code_point(text, [&](char32_t point) {
    if (point < counts_.size()) {
      ++counts_[point];
    } else {
      ++rare_[point];
    }
  });
}

Vocabulary VocabularyBuilder::build(std::int64_t size, std::int64_t min_count, const SpecialNames& names) const {
  const std::int64_t specials = static_cast<std::int64_t>(SpecialIds().all().size());
  check(size == 0 || size > specials, ExitCode::kUsage, "--vocab-size {}: {} rows are special; 0 means no limit", size,
        specials);
  std::vector<std::pair<std::int64_t, char32_t>> ranked;
  const auto rank = [&](char32_t point, std::int64_t count) {
    if (count >= std::max<std::int64_t>(min_count, 1)) ranked.emplace_back(-count, point);
  };
  for (std::size_t point = 0; point < counts_.size(); ++point) rank(static_cast<char32_t>(point), counts_[point]);
  for (const auto& [point, count] : rare_) rank(point, count);
  std::sort(ranked.begin(), ranked.end());
  if (size > 0) ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(size - specials)));
  std::vector<std::string> tokens;
  for (const auto& entry : ranked) append_utf8(entry.second, tokens.emplace_back());
  return Vocabulary::made(tokens, names);
}

}  // namespace gau
