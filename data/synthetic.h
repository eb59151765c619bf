// Made corpora with a known structure, so that everything can be tried without any text.
#pragma once

#include <cstdint>
#include <string>

#include "data/prepare.h"

namespace gau {

enum class SyntheticKind {
  /// Recall at a distance. A document is [CLS], then, at uniform places, `facts` facts c:v of distinct classes and a query ?c
  /// for
  /// each of them, the rest fillers. The label of a query is its fact. 32 classes × 16 values; guessing a value is right 1
  /// in 16.
  kRecall,
  /// A chain over 64 symbols: the next one depends on the last two and on a topic that lasts 512 symbols on average.
  kMarkov,
};

SyntheticKind parse_synthetic(const std::string& name);

struct SyntheticOptions {
  SyntheticKind kind = SyntheticKind::kMarkov;
  std::string output;
  std::int64_t length = 0;     ///< tokens a document; 0: 64 for recall, 4096 for markov
  std::int64_t documents = 0;  ///< 0: 20000 for recall, 512 for markov
  std::int64_t facts = 8;      ///< of recall: facts, and queries
  bool dense = false;          ///< of recall: length / 8 more facts, of classes that are not asked for
  SplitFractions fractions;
  std::uint64_t seed = 0;
};

/// Writes the corpus. Throws Error(kUsage) for options that do not fit together, Error(kIo).
PrepareReport make_synthetic(const SyntheticOptions& options);

}  // namespace gau
