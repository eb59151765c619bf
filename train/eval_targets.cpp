// Targets and windows of the evaluation protocols.
#include "train/eval_targets.h"

#include <algorithm>
#include <cassert>

#include "framework/random.h"
#include "train/statistics.h"

namespace gau {
namespace {

std::int64_t token_count(const EvalDocument& document) { return static_cast<std::int64_t>(document.tokens.size()); }

bool contains(std::span<const std::int32_t> ids, std::int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Appends a document's targets; one without targets is left out.
void add_document(TargetSet& set, std::int64_t document, std::vector<std::int64_t> positions) {
  if (positions.empty()) return;
  const auto count = static_cast<std::int64_t>(positions.size());
  set.documents.push_back({document, std::move(positions), set.total});
  set.total += count;
}

/// `keep` of the values, evenly spaced.
template <class T>
std::vector<T> evenly(const std::vector<T>& values, std::int64_t keep) {
  const auto have = static_cast<std::int64_t>(values.size());
  if (keep >= have) return values;
  std::vector<T> kept;
  for (std::int64_t i = 0; i < keep; ++i) kept.push_back(values[static_cast<std::size_t>((2 * i + 1) * have / (2 * keep))]);
  return kept;
}

/// A phase below `range`, keyed by (seed, document): independent of which other documents are there.
std::int64_t phase_of(std::uint64_t seed, std::int64_t document, std::int64_t range) {
  const RandomKey key{seed, 0, Site::kEvaluation, 0};
  const auto id = static_cast<std::uint64_t>(document);
  return static_cast<std::int64_t>(
      key.below(static_cast<std::uint64_t>(range), static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32), 0));
}

std::int64_t targets_with_cap(const TargetSet& set, std::int64_t cap) {
  std::int64_t sum = 0;
  for (const DocumentTargets& entry : set.documents) sum += std::min(cap, static_cast<std::int64_t>(entry.positions.size()));
  return sum;
}

}  // namespace

TargetSet spaced_targets(std::span<const EvalDocument> documents, const TargetOptions& options) {
  TargetSet set;
  const std::int64_t edge = options.max_length / 4;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const EvalDocument& document = documents[d];
    const std::int64_t tokens = token_count(document);
    if (tokens < options.max_length || tokens == 0) {
      ++set.skipped;
      continue;
    }
    // A phase beyond the range would leave a short document without any target.
    const std::int64_t range = std::min(options.stride, tokens - 2 * edge);
    std::vector<std::int64_t> positions;
    for (std::int64_t p = edge + phase_of(options.seed, document.index, range); p < tokens - edge; p += options.stride) {
      if (!contains(options.special_ids, document.tokens[static_cast<std::size_t>(p)])) positions.push_back(p);
    }
    add_document(set, static_cast<std::int64_t>(d), std::move(positions));
  }
  if (options.limit > 0) thin(set, options.limit);
  return set;
}

TargetSet leading_targets(std::span<const EvalDocument> documents, std::int64_t length, std::int64_t per_document,
                          std::span<const std::int32_t> special_ids) {
  TargetSet set;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    if (token_count(documents[d]) < length) {
      ++set.skipped;
      continue;
    }
    std::vector<std::int64_t> positions;
    for (std::int64_t p = 0; p < length; ++p) {
      if (!contains(special_ids, documents[d].tokens[static_cast<std::size_t>(p)])) positions.push_back(p);
    }
    if (per_document > 0) positions = evenly(positions, per_document);
    add_document(set, static_cast<std::int64_t>(d), std::move(positions));
  }
  return set;
}

TargetSet labelled_targets(std::span<const EvalDocument> documents, std::int64_t length) {
  TargetSet set;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    if (token_count(documents[d]) != length) {
      ++set.skipped;
      continue;
    }
    std::vector<std::int64_t> positions;
    for (std::size_t p = 0; p < documents[d].labels.size(); ++p) {
      if (documents[d].labels[p] >= 0) positions.push_back(static_cast<std::int64_t>(p));
    }
    add_document(set, static_cast<std::int64_t>(d), std::move(positions));
  }
  return set;
}

void thin(TargetSet& targets, std::int64_t limit) {
  if (targets.total <= limit) return;
  // The largest number that every document may keep, then one more for as many as still fit.
  std::int64_t cap = 0;
  while (targets_with_cap(targets, cap + 1) <= limit) ++cap;
  std::vector<std::size_t> longer;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    if (static_cast<std::int64_t>(targets.documents[e].positions.size()) > cap) longer.push_back(e);
  }
  const std::vector<std::size_t> extra = evenly(longer, limit - targets_with_cap(targets, cap));
  TargetSet kept;
  kept.skipped = targets.skipped;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    const std::int64_t keep = cap + (std::binary_search(extra.begin(), extra.end(), e) ? 1 : 0);
    add_document(kept, targets.documents[e].document, evenly(targets.documents[e].positions, keep));
  }
  targets = std::move(kept);
}

std::vector<EvalWindow> sliding_windows(const TargetSet& targets, std::span<const EvalDocument> documents,
                                        std::int64_t length) {
  const std::int64_t edge = length / 4;
  const std::int64_t hop = length - 2 * edge;
  std::vector<EvalWindow> windows;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    const DocumentTargets& entry = targets.documents[e];
    const std::int64_t last_start = token_count(documents[static_cast<std::size_t>(entry.document)]) - length;
    for (std::size_t i = 0; i < entry.positions.size(); ++i) {
      const std::int64_t position = entry.positions[i];
      assert(position >= edge && position < last_start + length - edge);
      // Moving the last window to the left keeps its targets inside the core: they lie below n - edge.
      const std::int64_t start = std::min((position - edge) / hop * hop, last_start);
      if (!windows.empty() && windows.back().entry == static_cast<std::int64_t>(e) && windows.back().start == start) {
        ++windows.back().count;
      } else {
        windows.push_back({static_cast<std::int64_t>(e), start, static_cast<std::int64_t>(i), 1});
      }
    }
  }
  return windows;
}

std::vector<EvalWindow> centred_windows(const TargetSet& targets, std::span<const EvalDocument> documents,
                                        std::int64_t length) {
  std::vector<EvalWindow> windows;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    const DocumentTargets& entry = targets.documents[e];
    const std::int64_t last_start = token_count(documents[static_cast<std::size_t>(entry.document)]) - length;
    for (std::size_t i = 0; i < entry.positions.size(); ++i) {
      const std::int64_t start = std::clamp<std::int64_t>(entry.positions[i] - length / 2, 0, last_start);
      windows.push_back({static_cast<std::int64_t>(e), start, static_cast<std::int64_t>(i), 1});
    }
  }
  return windows;
}

std::vector<EvalWindow> leading_windows(const TargetSet& targets) {
  std::vector<EvalWindow> windows;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    for (std::size_t i = 0; i < targets.documents[e].positions.size(); ++i) {
      windows.push_back({static_cast<std::int64_t>(e), 0, static_cast<std::int64_t>(i), 1});
    }
  }
  return windows;
}

std::vector<EvalWindow> whole_windows(const TargetSet& targets) {
  std::vector<EvalWindow> windows;
  for (std::size_t e = 0; e < targets.documents.size(); ++e) {
    const auto count = static_cast<std::int64_t>(targets.documents[e].positions.size());
    windows.push_back({static_cast<std::int64_t>(e), 0, 0, count});
  }
  return windows;
}

UnitMap map_units(const TargetSet& targets, std::int64_t block) {
  UnitMap map;
  map.blocks = static_cast<std::int64_t>(targets.documents.size()) < kMinBootstrapUnits;
  for (const DocumentTargets& entry : targets.documents) {
    std::int64_t block_before = -1;
    for (std::int64_t position : entry.positions) {
      const std::int64_t block_here = map.blocks ? position / block : 0;
      if (block_here != block_before) ++map.count;
      block_before = block_here;
      map.unit.push_back(map.count - 1);
    }
  }
  return map;
}

}  // namespace gau
