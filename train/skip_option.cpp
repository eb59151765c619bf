#include "train/skip_option.h"

#include <charconv>

namespace gau {

SkipOption parse_skip(const std::string& text) {
  if (text == "off") return {true, 0};
  if (text == "exact") return {true, std::nullopt};
  double tolerance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tolerance);
  if (error != std::errc() || end != text.data() + text.size() || !(tolerance > 0 && tolerance < 1))
    return {false, std::nullopt};
  return {true, tolerance};
}

}  // namespace gau
