// Corpus: tokens of documents with their splits and vocabulary, in one HDF5 file.
//
//   /tokens   uint16 (uint32 when the vocabulary needs it), all documents one after another
//   /offsets  uint64 [documents + 1], where each document begins
//   /splits   uint8 [documents], 0 train, 1 valid, 2 test
//   /vocab    strings, by id
//   /labels   int32, parallel to /tokens: what to predict, -1 elsewhere; only in made data, whose tokens hold the masks already
//   attributes of the root: kind = "corpus", version, tokenizer, pad_id unk_id cls_id sep_id mask_id, settings, provenance
//   (JSON)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "framework/hdf5_file.h"

namespace gau {

enum class Split : std::uint8_t { kTrain = 0, kValid = 1, kTest = 2 };

/// "train", "valid", "test"; parse_split throws Error(kUsage) for anything else.
const char* name_of(Split split);
Split parse_split(const std::string& name);

/// -Σ p ln p over the relative frequencies of counts, in nats; 0 when all are 0.
double entropy_of_counts(std::span<const std::int64_t> counts);

/// A corpus open for reading. Reading calls are thread-safe.
class Corpus {
 public:
  /// Throws Error(kData) naming the file when it is not a whole and consistent corpus, Error(kIo) when it cannot be read.
  explicit Corpus(const std::string& path);

  const std::string& path() const { return reader_.path(); }
  /// Digest of the whole contents: the seal's, or for a file made elsewhere one over tokens, labels, offsets, splits and
  /// vocabulary, for which it is read.
  std::uint64_t digest() const;

  std::int64_t documents() const { return static_cast<std::int64_t>(splits_.size()); }
  std::int64_t document_length(std::int64_t document) const;
  Split split(std::int64_t document) const { return splits_.at(static_cast<std::size_t>(document)); }
  /// The documents of a split, rising; empty documents among them.
  std::vector<std::int64_t> documents_of(Split split) const;
  std::int64_t tokens() const { return static_cast<std::int64_t>(offsets_.back()); }
  std::int64_t tokens_of(Split split) const;

  /// Tokens [first, first + count) of a document. Throws Error(kData) outside of it, and for ids outside of the vocabulary.
  std::vector<std::int32_t> tokens(std::int64_t document, std::int64_t first, std::int64_t count) const;
  bool has_labels() const { return has_labels_; }
  /// Labels parallel to tokens(); only with has_labels().
  std::vector<std::int32_t> labels(std::int64_t document, std::int64_t first, std::int64_t count) const;

  const Vocabulary& vocabulary() const { return tokenizer_->vocabulary(); }
  const SpecialIds& special() const { return vocabulary().special(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& provenance() const { return provenance_; }

  /// Entropy of the token frequencies of a split: the loss of guessing by frequency alone, in nats. 0 for no tokens.
  double unigram_entropy(Split split) const;

 private:
  std::vector<std::int32_t> range(const char* dataset, const std::vector<std::int32_t>& held, std::int64_t document,
                                  std::int64_t first, std::int64_t count) const;
  void check_structure() const;

  h5::Reader reader_;
  std::vector<std::uint64_t> offsets_;
  std::vector<Split> splits_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string provenance_;
  bool has_labels_ = false;
  std::vector<std::int32_t> tokens_;  ///< all of them, when few enough to be held
  std::vector<std::int32_t> labels_;
};

/// A corpus being written; nothing is there before publish().
class CorpusWriter {
 public:
  CorpusWriter(const std::string& path, const Tokenizer& tokenizer, bool with_labels);

  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels = {});
  std::int64_t documents() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  /// One split a document. `settings` and `provenance` are JSON without paths and times. Returns the digest.
  std::uint64_t publish(const std::vector<Split>& splits, const std::string& settings, const std::string& provenance);

 private:
  void flush();

  h5::Writer writer_;
  const Tokenizer& tokenizer_;
  bool wide_;
  bool with_labels_;
  std::vector<std::uint64_t> offsets_{0};
  std::vector<std::int32_t> tokens_;  ///< not yet written
  std::vector<std::int32_t> labels_;
};

}  // namespace gau
