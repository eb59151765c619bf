// Made corpora with a known structure, so that everything can be tried without any text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace gau {

enum class SyntheticKind {
  /// Recall at a distance. A document is [CLS], then, at uniform places, `facts` facts c:v of distinct classes and a query ?c
  /// for
  /// each of them, the rest fillers. The label of a query is its fact, which stands in the document once. 32 classes × 16
  /// values; guessing a value is right 1 in 16.
  kRecall,
  /// A chain over 64 symbols: the next one depends on the last two and on a topic that lasts 512 symbols on average.
  kMarkov,
};

SyntheticKind parse_synthetic(const std::string& name);

struct SyntheticOptions {
  SyntheticKind kind = SyntheticKind::kMarkov;
  std::string output;
  /// Tokens a document; several: the documents take them in turn. Empty: 64 for recall, 4096 for markov.
  std::vector<std::int64_t> lengths;
  std::int64_t documents = 0;  ///< 0: 20000 for recall, 512 for markov
  std::int64_t facts = 8;      ///< of recall: facts, and queries
  bool dense = false;          ///< of recall: length / 8 more facts, of classes that are not asked for
  /// Of recall: rising upper ends of distance buckets. The pairs of fact and query then take the buckets that their document is
  /// long enough for in turn, at a uniform distance inside, either side first. Empty: uniform places. With uniform places short
  /// distances all but never happen in a long document; with buckets each has as many queries.
  std::vector<std::int64_t> distances;
  SplitFractions fractions;
  std::uint64_t seed = 0;
};

/// Writes the corpus. Throws Error(kUsage) for options that do not fit together, Error(kIo).
PrepareReport make_synthetic(const SyntheticOptions& options);

}  // namespace gau
