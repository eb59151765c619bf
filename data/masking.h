// Masking: which tokens of a window are to be predicted, and what the model sees in their place.
//
// A token is chosen with probability p; of the chosen, 80 % become [MASK], 10 % a random token, 10 % stay. The numbers are
// drawn at (seed, epoch, document, position in the document), so they depend on nothing else. By whole words, one draw at a
// word's first token in the window decides for all its tokens (the random tokens differ).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/sampler.h"
#include "data/tokenizer.h"

namespace gau {

struct MaskOptions {
  double probability = 0.15;  ///< above 0, at most 1
  bool whole_word = false;
  std::uint64_t seed = 0;
};

class Masker {
 public:
  /// Words longer than this are masked in parts, so that text without blanks keeps its share of masks.
  static constexpr std::int64_t kLongestWord = 32;

  /// Throws Error(kData) naming mask_prob when it is outside (0, 1]. Keeps no reference to `tokenizer`.
  Masker(const Tokenizer& tokenizer, const MaskOptions& options);

  /// Changes `ids`, the tokens of `window`, and returns the indices of the chosen ones, rising. Special tokens are never
  /// chosen, and never put in.
  std::vector<std::int32_t> mask(const Window& window, std::span<std::int32_t> ids) const;

 private:
  std::int32_t random_token(std::uint32_t bits) const;

  MaskOptions options_;
  SpecialIds special_;
  std::vector<std::int32_t> special_rows_;  ///< rising, without repeats
  std::int64_t vocab_size_;
  std::vector<WordPart> word_parts_;
};

}  // namespace gau
