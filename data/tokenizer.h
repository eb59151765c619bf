// Tokenizer: text to ids and back, and which tokens make a word together.
//
// No text is normalised: a code point (or byte) is what it is, zero-width ones included, the same in preparation, training and
// filling. What the vocabulary lacks is [UNK], token by token.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/vocabulary.h"

namespace gau {

/// How a token joins the one before it to a word.
enum class WordPart : std::uint8_t {
  kAlone,   ///< begins a word; a kLetter after it begins another
  kLetter,  ///< joins a kLetter before it
  kPiece,   ///< joins whatever is before it ("##able")
};

class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Tokenizer() = default;

  /// The name under which make_tokenizer() makes it again.
  virtual std::string name() const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Ids of `text`. With `specials`, the texts of the special tokens in it ("[MASK]") become their ids.
  std::vector<std::int32_t> encode(std::string_view text, bool specials = false) const;
  /// The text of ids; special tokens by their names.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// By id: what each token is to a word. Special tokens are kAlone.
  const std::vector<WordPart>& word_parts() const { return word_parts_; }

 protected:
  virtual void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  std::vector<WordPart> word_parts_;

 private:
  Vocabulary vocabulary_;
};

/// A token is a Unicode code point. Words are runs of letters and digits; each ideograph, kana and sign is a word of its own.
/// Text that is not UTF-8 becomes U+FFFD.
class CharTokenizer : public Tokenizer {
 public:
  explicit CharTokenizer(Vocabulary vocabulary);
  std::string name() const override { return "char"; }
  std::string decode(std::span<const std::int32_t> ids) const override;

 protected:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;

 private:
  std::vector<std::int32_t> ids_;  ///< by code point, up to the largest known
};

/// A token is a byte: row 5 + b, written "<0x41>" in the vocabulary.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(Vocabulary vocabulary);
  static Vocabulary make_vocabulary(const SpecialNames& names);
  std::string name() const override { return "byte"; }
  std::string decode(std::span<const std::int32_t> ids) const override;

 protected:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;

 private:
  std::int32_t first_ = 0;  ///< row of byte 0
};

/// A token is a name between blanks: the tokenizer of made data.
class NameTokenizer : public Tokenizer {
 public:
  explicit NameTokenizer(Vocabulary vocabulary);
  std::string name() const override { return "name"; }
  std::string decode(std::span<const std::int32_t> ids) const override;

 protected:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;
};

/// Throws Error(kUsage) for a name that is not built in.
void check_tokenizer_name(const std::string& name);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, Vocabulary vocabulary);

/// Counts what a vocabulary is built from, document by document.
class VocabularyBuilder {
 public:
  void add(std::string_view text);
  /// Code points by falling count, equal counts by rising code point, of at least `min_count`; at most `size` rows with the
  /// specials (0: no limit).
  Vocabulary build(std::int64_t size, std::int64_t min_count, const SpecialNames& names) const;

 private:
  std::map<char32_t, std::int64_t> rare_;
  std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(0x10000, 0);
};

}  // namespace gau
