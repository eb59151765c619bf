// Damaged copies of a file: mutant i of a kind is a function of the bytes, the kind and i alone, so that a failure can be
// repeated by its number.
//
// Half of the damage falls into the first 4 KiB, where sizes, seals and headers are.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "framework/random.h"

namespace gau {

class Mutator {
 public:
  Mutator(std::uint64_t kind, std::uint32_t index) : key_{kind, index} {}

  /// Never equal to `bytes`.
  std::string operator()(const std::string& bytes) {
    std::string result = damaged(bytes);
    // Some damage changes nothing: a block copied over its like.
    if (result == bytes) result.empty() ? result.push_back('x') : flip(result);
    return result;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(key_.below(std::max<std::size_t>(n, 1), next_++, 0, 0)); }
  std::size_t place(const std::string& bytes) {
    return below(2) == 0 ? below(std::min<std::size_t>(bytes.size(), 4096)) : below(bytes.size());
  }
  std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  }
  void flip(std::string& bytes) {
    char& byte = bytes[place(bytes)];
    byte = static_cast<char>(byte ^ static_cast<char>(1U << below(8)));
  }
  /// A number where a size, an offset or a count may be.
  std::uint64_t tricky(std::size_t size) {
    const std::array<std::uint64_t, 12> numbers = {0,
                                                   1,
                                                   size,
                                                   size + 1,
                                                   size - 1,
                                                   0x7FFFFFFF,
                                                   0x80000000,
                                                   0xFFFFFFFF,
                                                   std::uint64_t{1} << 32,
                                                   std::uint64_t{1} << 62,
                                                   std::uint64_t{1} << 63,
                                                   std::numeric_limits<std::uint64_t>::max()};
    return numbers[below(numbers.size())];
  }
  void write_number(std::string& bytes, std::size_t width) {
    if (bytes.size() < width) return;
    const std::uint64_t number = tricky(bytes.size());
    const std::size_t at = below(2) == 0 ? place(bytes) / width * width : place(bytes);
    std::memcpy(bytes.data() + std::min(at, bytes.size() - width), &number, width);
  }
  /// Another decimal number for one in text.
  void rewrite_number(std::string& bytes) {
    const std::size_t begin = bytes.find_first_of("0123456789", place(bytes));
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(bytes.find_first_not_of("0123456789", begin), bytes.size());
    const std::string sign = below(4) == 0 ? "-" : "";
    bytes.replace(begin, end - begin, sign + std::to_string(tricky(bytes.size())));
  }

  std::string damaged(std::string bytes) {
    if (bytes.empty()) return random_bytes(1 + below(16));
    const std::size_t at = place(bytes), count = 1 + below(16);
    switch (below(12)) {
      case 0:
      case 1:
        flip(bytes);
        break;
      case 2:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, random_bytes(count));
        break;
      case 5:
        bytes.erase(at, count);
        break;
      case 6:
        bytes += random_bytes(count);
        break;
      case 7:
        write_number(bytes, 8);
        break;
      case 8:
        write_number(bytes, 4);
        break;
      case 9:
        rewrite_number(bytes);
        break;
      case 10:
        bytes.insert(at, bytes.substr(place(bytes), 4 * count));
        break;
      default:
        std::swap(bytes[at], bytes[std::min(at + 1, bytes.size() - 1)]);
    }
    return bytes;
  }

  RandomKey key_;
  std::uint32_t next_ = 0;
};

}  // namespace gau
