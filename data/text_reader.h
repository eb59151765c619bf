// TextReader: documents out of text files, with every fault of the text counted and placed.
//
// Lines end with LF, CRLF or a lone CR. Text that is not UTF-8 is mended, shortened or refused; nothing else of it changes. The
// file streams through: memory holds a document, time is linear, however long a line is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"

namespace gau {

enum class TextFormat {
  kLines,     ///< a document a line
  kDocument,  ///< a document a file; line ends become LF, the last one is dropped
  kJsonl,     ///< a JSON object a line, the document in one of its fields
  kFasta,     ///< a document a record: the lines after a ">" line, joined
};

enum class OnInvalid {
  kReplace,  ///< each byte that is not UTF-8 becomes U+FFFD
  kSkip,     ///< such bytes are left out
  kError,    ///< the first one ends the work
};

/// Throw Error(kUsage) with the known names.
TextFormat parse_text_format(const std::string& name);
OnInvalid parse_on_invalid(const std::string& name);

struct TextOptions {
  TextFormat format = TextFormat::kLines;
  std::string field = "text";
  OnInvalid on_invalid = OnInvalid::kReplace;
  bool skip_bad = false;  ///< records that cannot be read are counted instead of ending the work
};

struct TextStatistics {
  std::string name;
  std::int64_t bytes = 0;  ///< of text, unpacked
  std::int64_t lines = 0;
  std::int64_t documents = 0;  ///< given out
  std::int64_t empty = 0;      ///< left out: nothing in them but blanks
  std::int64_t invalid_bytes = 0;
  std::int64_t carriage_returns = 0;            ///< all CR bytes
  std::int64_t lone_returns = 0;                ///< CRs that ended a line by themselves
  std::vector<std::string> invalid_places;      ///< the first few: "bad.txt:2: byte 5: 0x92"
  std::map<std::string, std::int64_t> skipped;  ///< records left out with skip_bad, by reason
};

class TextReader {
 public:
  /// `name` is what reports and errors call the file.
  TextReader(const std::string& path, const std::string& name, const TextOptions& options);

  /// The next document that has more than blanks in it; false at the end. Throws Error(kData) with file and line.
  bool next(std::string& document);
  const TextStatistics& statistics() const { return statistics_; }
  /// Bytes taken from the file so far.
  std::int64_t consumed() const { return source_->consumed(); }

 private:
  bool next_line(std::string& line);
  bool next_record(std::string& document);
  bool next_whole_file(std::string& document);
  bool next_json(std::string& document);
  bool next_fasta(std::string& document);
  bool refill();
  void skip_byte_order_mark();
  void mend(std::string& line);
  void note_invalid(std::string_view line, std::size_t offset);
  /// Counts the record under `reason` with skip_bad, else throws with `message`.
  void bad_record(const std::string& reason, const std::string& message);

  std::unique_ptr<ByteSource> source_;
  TextOptions options_;
  TextStatistics statistics_;
  std::string buffer_;
  std::size_t at_ = 0;
  bool at_end_ = false;
  bool started_ = false;
  bool in_record_ = false;  ///< FASTA: a header was read
};

}  // namespace gau
