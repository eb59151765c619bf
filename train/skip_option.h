// What a user says about the keys that attention leaves out.
#pragma once

#include <optional>
#include <string>

namespace gau {

/// "off" (0: all keys are computed), "exact" (nothing: what a sum in the model's type cannot notice, AttentionPlan's default),
/// or a tolerance in (0, 1) that is AttentionPlan::skip. Also nothing, with `known` false, for any other text.
struct SkipOption {
  bool known = true;
  std::optional<double> skip;
};
SkipOption parse_skip(const std::string& text);

}  // namespace gau
