// Sampler: position -> epoch, window of the epoch by the keyed permutation, document by binary search, cut by the phase.
#include "data/sampler.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

/// Streams of Site::kShuffle.
constexpr std::uint32_t kOrder = 0;
constexpr std::uint32_t kPhase = 1;

}  // namespace

Sampler::Sampler(const Corpus& corpus, Split split, std::int64_t length, std::uint64_t seed, bool shuffle)
    : corpus_(corpus), length_(length), seed_(seed), shuffle_(shuffle), first_window_{0} {
  check(length >= 1, ExitCode::kData, "[data] length = {}: must be at least 1", length);
  for (const std::int64_t document : corpus.documents_of(split)) {
    const std::int64_t tokens = corpus.document_length(document);
    if (tokens == 0) continue;
    documents_.push_back(document);
    first_window_.push_back(first_window_.back() + (tokens - 1) / length + 1);
  }
}

Window Sampler::at(std::uint64_t position) const {
  const auto windows_an_epoch = static_cast<std::uint64_t>(windows());
  check(windows_an_epoch > 0, ExitCode::kData, "{}: no tokens to sample", corpus_.path());
  const std::uint64_t epoch = position / windows_an_epoch;
  std::uint64_t index = position % windows_an_epoch;
  if (shuffle_) index = permute(index, windows_an_epoch, RandomKey{seed_, epoch, Site::kShuffle, kOrder});

  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), static_cast<std::int64_t>(index));
  const auto slot = static_cast<std::size_t>(after - first_window_.begin()) - 1;
  Window window;
  window.document = documents_[slot];
  window.epoch = static_cast<std::int64_t>(epoch);
  const std::int64_t tokens = corpus_.document_length(window.document);
  std::int64_t phase = 0;
  if (shuffle_) {
    const std::int64_t slack = (first_window_[slot + 1] - first_window_[slot]) * length_ - tokens;
    const auto document = static_cast<std::uint64_t>(window.document);
    phase = static_cast<std::int64_t>(RandomKey{seed_, epoch, Site::kShuffle, kPhase}.below(
        static_cast<std::uint64_t>(slack) + 1, static_cast<std::uint32_t>(document), static_cast<std::uint32_t>(document >> 32),
        0));
  }
  const std::int64_t begin = (static_cast<std::int64_t>(index) - first_window_[slot]) * length_ - phase;
  window.begin = std::max<std::int64_t>(begin, 0);
  window.end = std::min(begin + length_, tokens);
  return window;
}

}  // namespace gau
