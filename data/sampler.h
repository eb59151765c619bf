// Sampler: which window of which document is at which position of training. A pure function; there is no state to save.
//
// An epoch visits n = Σ_d n_d windows, n_d = ⌈tokens_d / length⌉, in a keyed order. Window k of document d is
//   [k · length - φ, (k + 1) · length - φ) ∩ [0, tokens_d),  φ(seed, epoch, d) uniform in [0, n_d · length - tokens_d],
// so every token is seen exactly once an epoch, n never changes, and the cuts move from epoch to epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpus.h"

namespace gau {

struct Window {
  std::int64_t document = 0;
  std::int64_t begin = 0;  ///< first token, in the document
  std::int64_t end = 0;    ///< one past the last; 1 to `length` tokens
  std::int64_t epoch = 0;
};

class Sampler {
 public:
  /// `shuffle` false: windows in the order of the documents, φ = 0 (evaluation).
  Sampler(const Corpus& corpus, Split split, std::int64_t length, std::uint64_t seed, bool shuffle);

  /// Windows of an epoch; 0 for a split without tokens.
  std::int64_t windows() const { return first_window_.back(); }
  Window at(std::uint64_t position) const;

 private:
  const Corpus& corpus_;
  std::int64_t length_;
  std::uint64_t seed_;
  bool shuffle_;
  std::vector<std::int64_t> documents_;     ///< those that have tokens
  std::vector<std::int64_t> first_window_;  ///< of each document, and the total
};

}  // namespace gau
