// UTF-8 decoding by the table of RFC 3629, section 4.
#include "data/utf8.h"

namespace gau {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t offset) { return static_cast<unsigned char>(text[offset]); }

/// The smallest code point that needs a form of this many bytes.
constexpr char32_t kSmallest[5] = {0, 0, 0x80, 0x800, 0x10000};

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t offset) {
  const std::uint32_t lead = byte_at(text, offset);
  if (lead < 0x80) return {lead, 1, true};
  const std::uint32_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || offset + bytes > text.size()) return {};
  char32_t value = lead & (0xFFU >> (bytes + 1));
  for (std::uint32_t i = 1; i < bytes; ++i) {
    const std::uint32_t next = byte_at(text, offset + i);
    if ((next & 0xC0U) != 0x80U) return {};
    value = (value << 6) | (next & 0x3FU);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[bytes] || value > 0x10FFFF || surrogate) return {};
  return {value, bytes, true};
}

void append_utf8(char32_t point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | (point >> 6));
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | (point >> 12));
    put(0x80 | ((point >> 6) & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | (point >> 18));
    put(0x80 | ((point >> 12) & 0x3F));
    put(0x80 | ((point >> 6) & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

}  // namespace gau
