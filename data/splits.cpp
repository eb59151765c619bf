// Documents are ranked by a random number of their own; the first go to validation, the next to the test.
#include "data/splits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

/// A stream of Site::kShuffle that the sampler does not use.
constexpr std::uint32_t kSplitStream = 2;

/// Documents of one split out of `documents`, of which `available` can be had.
std::int64_t share_of(double fraction, std::int64_t documents, std::int64_t available) {
  if (fraction <= 0) return 0;
  const auto rounded = static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(documents)));
  return std::clamp<std::int64_t>(std::max<std::int64_t>(rounded, 1), 0, std::max<std::int64_t>(available, 0));
}

}  // namespace

void check_fractions(const SplitFractions& fractions) {
  const bool sound = fractions.valid >= 0 && fractions.test >= 0 && fractions.valid + fractions.test <= 1 + 1e-9;
  check(sound, ExitCode::kUsage, "--valid {} --test {}: both must be at least 0, and their sum at most 1", fractions.valid,
        fractions.test);
}

std::vector<Split> assign_splits(std::int64_t documents, const SplitFractions& fractions, std::uint64_t seed) {
  check_fractions(fractions);
  const bool train_nothing = fractions.valid + fractions.test >= 1 - 1e-9;
  const std::int64_t available = documents - (train_nothing ? 0 : 1);
  const std::int64_t valid = share_of(fractions.valid, documents, available);
  std::int64_t test = share_of(fractions.test, documents, available - valid);
  if (train_nothing && fractions.test > 0) test = documents - valid;

  const RandomKey key{seed, 0, Site::kShuffle, kSplitStream};
  std::vector<std::pair<double, std::int64_t>> ranked;
  for (std::int64_t document = 0; document < documents; ++document) {
    const auto index = static_cast<std::uint64_t>(document);
    ranked.emplace_back(key.uniform(static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0), document);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<Split> splits(static_cast<std::size_t>(documents), Split::kTrain);
  for (std::int64_t rank = 0; rank < valid + test; ++rank) {
    const std::int64_t document = ranked[static_cast<std::size_t>(rank)].second;
    splits[static_cast<std::size_t>(document)] = rank < valid ? Split::kValid : Split::kTest;
  }
  return splits;
}

}  // namespace gau
