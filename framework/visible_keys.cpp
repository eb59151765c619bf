#include "framework/visible_keys.h"

#include <algorithm>

namespace gau {

VisibleKeys::VisibleKeys(const AttentionPlan& plan, const std::int32_t* mask, std::int64_t length)
    : plan_(plan), length_(length) {
  if (!mask) return;
  before_.assign(static_cast<std::size_t>(length) + 1, 0);
  for (std::size_t j = 0; j < static_cast<std::size_t>(length); ++j) before_[j + 1] = before_[j] + (mask[j] != 0);
}

std::int64_t VisibleKeys::tokens(std::int64_t begin, std::int64_t end) const {
  if (begin >= end) return 0;
  if (before_.empty()) return end - begin;
  return before_[static_cast<std::size_t>(end)] - before_[static_cast<std::size_t>(begin)];
}

std::int64_t VisibleKeys::seen(std::int64_t i, std::int64_t begin, std::int64_t end) const {
  std::int64_t count = tokens(begin, end);
  if (i >= plan_.rows && plan_.window < length_) {
    const std::int64_t low = std::clamp(i - plan_.window, begin, end), high = std::clamp(i + plan_.window + 1, begin, end);
    count = tokens(low, high) + tokens(begin, std::min(low, plan_.sinks)) + tokens(high, std::min(end, plan_.sinks));
  }
  if (plan_.mask_diagonal && begin <= i && i < end) count -= tokens(i, i + 1);
  return count;
}

}  // namespace gau
