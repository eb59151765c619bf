#include "train/text_windows.h"

#include <algorithm>

#include "framework/error.h"

namespace gau {

std::vector<TokenWindow> spaced_windows(std::span<const EvalDocument> documents, std::int64_t length, std::int64_t count,
                                        const std::string& where) {
  std::vector<std::pair<const EvalDocument*, std::int64_t>> starts;
  std::int64_t longest = 0;
  for (const EvalDocument& document : documents) {
    const auto tokens = static_cast<std::int64_t>(document.tokens.size());
    longest = std::max(longest, tokens);
    for (std::int64_t start = 0; start + length <= tokens; start += length) starts.emplace_back(&document, start);
  }
  const auto all = static_cast<std::int64_t>(starts.size());
  check(all > 0, ExitCode::kData, "{}: no document has {} tokens (the longest has {}); give shorter --lengths", where, length,
        longest);
  count = std::min(count, all);
  std::vector<TokenWindow> windows;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto& [document, start] = starts[static_cast<std::size_t>((2 * n + 1) * all / (2 * count))];
    const auto first = document->tokens.begin() + start;
    windows.emplace_back(first, first + length);
  }
  return windows;
}

std::span<const std::int32_t> middle(const TokenWindow& window, std::int64_t length) {
  const auto wanted = static_cast<std::size_t>(length);
  return std::span(window).subspan((window.size() - wanted) / 2, wanted);
}

}  // namespace gau
