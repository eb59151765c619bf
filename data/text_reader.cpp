// Lines out of bytes, documents out of lines.
#include "data/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/json_record.h"
#include "data/utf8.h"
#include "framework/error.h"

namespace gau {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;
constexpr std::size_t kShownPlaces = 10;

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos; }

}  // namespace

TextFormat parse_text_format(const std::string& name) {
  if (name == "lines") return TextFormat::kLines;
  if (name == "document") return TextFormat::kDocument;
  if (name == "jsonl") return TextFormat::kJsonl;
  if (name == "fasta") return TextFormat::kFasta;
  fail(ExitCode::kUsage, "--format {}: unknown; known: lines, document, jsonl, fasta", name);
}

OnInvalid parse_on_invalid(const std::string& name) {
  if (name == "replace") return OnInvalid::kReplace;
  if (name == "skip") return OnInvalid::kSkip;
  if (name == "error") return OnInvalid::kError;
  fail(ExitCode::kUsage, "--on-invalid {}: unknown; known: replace, skip, error", name);
}

TextReader::TextReader(const std::string& path, const std::string& name, const TextOptions& options)
    : source_(ByteSource::open(path, name)), options_(options) {
  statistics_.name = name;
}

bool TextReader::next(std::string& document) {
  while (next_record(document)) {
    if (is_blank(document)) {
      ++statistics_.empty;
      continue;
    }
    ++statistics_.documents;
    return true;
  }
  return false;
}

bool TextReader::next_record(std::string& document) {
  switch (options_.format) {
    case TextFormat::kLines:
      return next_line(document);
    case TextFormat::kDocument:
      return next_whole_file(document);
    case TextFormat::kJsonl:
      return next_json(document);
    case TextFormat::kFasta:
      return next_fasta(document);
  }
  return false;
}

bool TextReader::refill() {
  if (at_end_) return false;
  buffer_.resize(kBuffer);
  const std::size_t got = source_->read(buffer_.data(), buffer_.size());
  buffer_.resize(got);
  at_ = 0;
  at_end_ = got == 0;
  statistics_.bytes += static_cast<std::int64_t>(got);
  return got > 0;
}

void TextReader::skip_byte_order_mark() {
  started_ = true;
  while (buffer_.size() < 3 && !at_end_) {
    std::string head = buffer_;
    if (refill()) buffer_ = head + buffer_;
    if (at_end_) buffer_ = head;
  }
  const bool utf16 = buffer_.starts_with("\xFF\xFE") || buffer_.starts_with("\xFE\xFF");
  check(!utf16, ExitCode::kData, "{}: is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8", statistics_.name);
  if (buffer_.starts_with("\xEF\xBB\xBF")) at_ = 3;
}

/// The next line without its end; every byte of it is UTF-8 afterwards. An end of file ends a line that has begun.
bool TextReader::next_line(std::string& line) {
  line.clear();
  if (!started_) skip_byte_order_mark();
  if (at_ == buffer_.size() && !refill()) return false;
  ++statistics_.lines;
  for (;;) {
    const std::size_t end = std::min(buffer_.find_first_of("\r\n", at_), buffer_.size());
    line.append(buffer_, at_, end - at_);
    at_ = end;
    if (at_ < buffer_.size()) break;
    if (!refill()) break;
  }
  if (at_ < buffer_.size() && buffer_[at_++] == '\r') {
    ++statistics_.carriage_returns;
    if (at_ == buffer_.size()) refill();
    if (at_ < buffer_.size() && buffer_[at_] == '\n') {
      ++at_;
    } else {
      ++statistics_.lone_returns;
    }
  }
  mend(line);
  return true;
}

void TextReader::note_invalid(std::string_view line, std::size_t offset) {
  ++statistics_.invalid_bytes;
  if (options_.on_invalid != OnInvalid::kError && statistics_.invalid_places.size() >= kShownPlaces) return;
  std::string place = fmt::format("{}:{}: byte {}: {:#04x}", statistics_.name, statistics_.lines, offset + 1,
                                  static_cast<unsigned char>(line[offset]));
  check(options_.on_invalid != OnInvalid::kError, ExitCode::kData,
        "{}: not UTF-8; mend the text, or use --on-invalid replace or skip", place);
  statistics_.invalid_places.push_back(std::move(place));
}

void TextReader::mend(std::string& line) {
  std::string mended;
  std::size_t good = 0;
  for (std::size_t offset = 0; offset < line.size();) {
    const CodePoint point = code_point_at(line, offset);
    if (!point.valid) {
      note_invalid(line, offset);
      mended.append(line, good, offset - good);
      if (options_.on_invalid == OnInvalid::kReplace) append_utf8(kReplacement, mended);
      good = offset + 1;
    }
    offset += point.bytes;
  }
  if (good == 0) return;
  mended.append(line, good);
  line = std::move(mended);
}

bool TextReader::next_whole_file(std::string& document) {
  document.clear();
  std::string line;
  if (!next_line(document)) return false;
  while (next_line(line)) document.append(1, '\n').append(line);
  return true;
}

void TextReader::bad_record(const std::string& reason, const std::string& message) {
  check(options_.skip_bad, ExitCode::kData, "{}:{}: {}, or leave such records out: --skip-bad", statistics_.name,
        statistics_.lines, message);
  ++statistics_.skipped[reason];
}

bool TextReader::next_json(std::string& document) {
  std::string line;
  while (next_line(line)) {
    if (is_blank(line)) {
      document.clear();
      return true;
    }
    const JsonRecord record = parse_json_record(line, options_.field);
    if (record.reason.empty()) {
      document = record.text;
      return true;
    }
    bad_record(record.reason, record.message);
  }
  return false;
}

bool TextReader::next_fasta(std::string& document) {
  document.clear();
  std::string line;
  while (next_line(line)) {
    if (line.starts_with('>')) {
      if (std::exchange(in_record_, true)) return true;
    } else if (in_record_) {
      document += line;
    } else if (!is_blank(line)) {
      bad_record("text before the first header", "not FASTA: text before the first \">\" line; use another --format");
    }
  }
  return std::exchange(in_record_, false);
}

}  // namespace gau
