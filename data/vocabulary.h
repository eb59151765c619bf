// Vocabulary: the rows of the embedding, by id, and which of them are special.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gau {

/// The texts of the special tokens.
struct SpecialNames {
  std::string pad = "[PAD]";
  std::string unk = "[UNK]";
  std::string cls = "[CLS]";
  std::string sep = "[SEP]";
  std::string mask = "[MASK]";
};

/// Their ids.
struct SpecialIds {
  std::int32_t pad = 0;
  std::int32_t unk = 1;
  std::int32_t cls = 2;
  std::int32_t sep = 3;
  std::int32_t mask = 4;

  std::array<std::int32_t, 5> all() const { return {pad, unk, cls, sep, mask}; }
  bool contains(std::int32_t id) const { return id == pad || id == unk || id == cls || id == sep || id == mask; }
};

class Vocabulary {
 public:
  Vocabulary() = default;
  /// Rows as given; the specials are found by name. Throws Error(kData) naming `where` and every special that is missing. A
  /// token on two rows is warned about (both rows named): the first is used, all later rows keep their ids.
  Vocabulary(std::vector<std::string> tokens, const SpecialNames& names, const std::string& where);

  /// Special tokens on rows 0 to 4 ([PAD] [UNK] [CLS] [SEP] [MASK]), then `tokens`.
  static Vocabulary made(const std::vector<std::string>& tokens, const SpecialNames& names);
  /// Reads vocab.txt (one token a line; one trailing CR of a line is dropped) or the /vocab of an HDF5 file made here.
  static Vocabulary from_file(const std::string& path, const SpecialNames& names);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::string& token(std::int32_t id) const { return tokens_.at(static_cast<std::size_t>(id)); }
  /// The id of a token, or -1.
  std::int32_t find(std::string_view token) const;
  const SpecialIds& special() const { return special_; }
  /// Texts of the specials, in the order of SpecialIds::all().
  std::array<std::string, 5> special_texts() const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  SpecialIds special_;
};

}  // namespace gau
