// Fill-mask: the likeliest tokens at each [MASK] of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "layers/model.h"

namespace gau {

struct FillCandidate {
  std::int32_t id = 0;
  double probability = 0;  ///< over the whole vocabulary
};

struct FilledMask {
  std::int64_t position = 0;              ///< token of the text, from 0
  std::vector<FillCandidate> candidates;  ///< falling in probability; equal ones by rising id
};

struct FilledText {
  std::vector<FilledMask> masks;
  std::string best;  ///< the text with the first candidate at every mask
};

/// All masks are predicted in one pass. Throws Error(kUsage) when the text holds no [MASK]; `top` ≥ 1 is cut to the vocabulary.
FilledText fill_masks(const Model& model, const Tokenizer& tokenizer, const Method& method, const std::string& text,
                      std::int64_t top);

}  // namespace gau
