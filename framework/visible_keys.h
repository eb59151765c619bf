// What queries see of one sequence's keys: the counts behind kinds of rows, and behind which rank needs whose keys.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/attention_plan.h"

namespace gau {

class VisibleKeys {
 public:
  /// `mask` as AttentionInputs::key_mask, [length] of one sequence; null: all keys are tokens.
  VisibleKeys(const AttentionPlan& plan, const std::int32_t* mask, std::int64_t length);

  /// Tokens among the keys [begin, end).
  std::int64_t tokens(std::int64_t begin, std::int64_t end) const;
  /// Those of them that the query at position i sees.
  std::int64_t seen(std::int64_t i, std::int64_t begin, std::int64_t end) const;
  bool sees_nothing(std::int64_t i) const { return seen(i, 0, length_) == 0; }
  bool empty() const { return tokens(0, length_) == 0; }

 private:
  const AttentionPlan& plan_;
  std::int64_t length_;
  std::vector<std::int64_t> before_;  // tokens among the first j keys; empty: j
};

}  // namespace gau
