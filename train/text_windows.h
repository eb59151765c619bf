// Stretches of documents of one length, for measurements that need no masks and no targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/eval_targets.h"

namespace gau {

using TokenWindow = std::vector<std::int32_t>;

/// At most `count` windows of `length` tokens: documents are cut into whole windows, and evenly spaced ones taken. Throws
/// Error(kData) naming `where` when no document is long enough.
std::vector<TokenWindow> spaced_windows(std::span<const EvalDocument> documents, std::int64_t length, std::int64_t count,
                                        const std::string& where);

/// The `length` tokens in the middle of a window.
std::span<const std::int32_t> middle(const TokenWindow& window, std::int64_t length);

}  // namespace gau
