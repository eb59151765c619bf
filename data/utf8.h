// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gau {

constexpr char32_t kReplacement = 0xFFFD;

struct CodePoint {
  char32_t value = kReplacement;
  std::uint32_t bytes = 1;  ///< 1 when not valid: the next byte may begin something that is
  bool valid = false;
};

/// The code point at `offset`, which is below text.size().
CodePoint code_point_at(std::string_view text, std::size_t offset);
void append_utf8(char32_t point, std::string& out);

/// Calls `visit(char32_t)` for each code point; bytes that are not UTF-8 count as U+FFFD each.
template <class Visit>
void for_each_code_point(std::string_view text, Visit&& visit) {
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint point = code_point_at(text, offset);
    visit(point.value);
    offset += point.bytes;
  }
}

}  // namespace gau
