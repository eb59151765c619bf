// prepare: text to a corpus, with a report of all that was found on the way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/splits.h"
#include "data/text_reader.h"
#include "data/vocabulary.h"

namespace gau {

struct PrepareOptions {
  std::vector<std::string> inputs;  ///< files; "-" is standard input
  std::string output;               ///< unused with check_only
  TextOptions text;
  std::string tokenizer = "char";
  std::string vocab_file;       ///< empty: the vocabulary is built from the text
  std::int64_t vocab_size = 0;  ///< rows at most, specials included; 0: no limit
  std::int64_t min_count = 1;
  SpecialNames special;
  SplitFractions fractions;
  std::uint64_t seed = 0;
  bool check_only = false;  ///< report, and write nothing
};

struct FileReport {
  TextStatistics text;
  std::int64_t tokens = 0;
  std::int64_t unknown = 0;  ///< tokens that are [UNK]
};

struct SplitReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

struct PrepareReport {
  std::vector<FileReport> files;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t duplicates = 0;  ///< documents whose text came before
  std::int64_t vocab_size = 0;
  double unigram_entropy = 0;         ///< nats, over all tokens
  std::array<SplitReport, 3> splits;  ///< by Split
  std::uint64_t digest = 0;           ///< of the corpus; 0 with check_only
};

/// Reads all inputs, writes options.output whole or not at all, and warns of what looks wrong. Throws Error(kUsage) for options
/// that do not fit, Error(kData) for text that cannot be used (no tokens at all: with the counts), Error(kIo).
PrepareReport prepare(const PrepareOptions& options);

}  // namespace gau
