// Which documents train and which are kept for validation and test.
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpus.h"

namespace gau {

struct SplitFractions {
  double valid = 0.05;
  double test = 0.05;
};

/// Throws Error(kUsage) unless both are at least 0 and their sum is at most 1.
void check_fractions(const SplitFractions& fractions);

/// A split a document: round(fraction · documents) of them, drawn by (seed, document). A fraction above 0 gets at least one
/// document as long as one is left to train, validation first. Nothing is left to train only when the fractions add up to 1.
std::vector<Split> assign_splits(std::int64_t documents, const SplitFractions& fractions, std::uint64_t seed);

}  // namespace gau
