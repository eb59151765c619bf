// Corpus: reading and writing of the HDF5 file.
#include "data/corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "framework/digest.h"
#include "framework/error.h"

namespace gau {
namespace {

constexpr std::int64_t kVersion = 1;
/// Up to this many tokens (256 MB) are held in memory; more are read window by window.
constexpr std::int64_t kHeldTokens = std::int64_t{1} << 26;
/// How many tokens the writer gathers: one chunk of the file.
constexpr std::size_t kGathered = 65536;
/// Vocabularies up to this size fit uint16.
constexpr std::int64_t kNarrowVocabulary = 65536;

SpecialNames special_names(const h5::Reader& reader, const std::vector<std::string>& vocab) {
  const auto name_at = [&](const char* attribute) {
    const std::int64_t id = reader.int_attribute("/", attribute);
    check(id >= 0 && id < static_cast<std::int64_t>(vocab.size()), ExitCode::kData,
          "{}: {} = {} is not a row of the vocabulary of {}", reader.path(), attribute, id, vocab.size());
    return vocab[static_cast<std::size_t>(id)];
  };
  return {name_at("pad_id"), name_at("unk_id"), name_at("cls_id"), name_at("sep_id"), name_at("mask_id")};
}

h5::Reader open_corpus(const std::string& path) {
  h5::Reader reader(path);
  const bool is_corpus = reader.has_attribute("/", "kind") && reader.string_attribute("/", "kind") == "corpus";
  check(is_corpus, ExitCode::kData, "{}: not a corpus; `gau prepare` makes one from text", path);
  const std::int64_t version = reader.int_attribute("/", "version");
  check(version == kVersion, ExitCode::kData, "{}: a corpus of version {}, known is {}; prepare it again", path, version,
        kVersion);
  return reader;
}

}  // namespace

const char* name_of(Split split) {
  static constexpr std::array<const char*, 3> kNames = {"train", "valid", "test"};
  return kNames[static_cast<std::size_t>(split)];
}

Split parse_split(const std::string& name) {
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
    if (name == name_of(split)) return split;
  }
  fail(ExitCode::kUsage, "split \"{}\" is unknown; known: train, valid, test", name);
}

double entropy_of_counts(std::span<const std::int64_t> counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double entropy = 0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    entropy -= share * std::log(share);
  }
  return entropy;
}

Corpus::Corpus(const std::string& path) : reader_(open_corpus(path)), offsets_(reader_.read<std::uint64_t>("/offsets")) {
  for (const std::uint8_t split : reader_.read<std::uint8_t>("/splits")) {
    check(split <= 2, ExitCode::kData, "{}: /splits holds {}, known are 0, 1, 2", path, split);
    splits_.push_back(static_cast<Split>(split));
  }
  check_structure();
  const std::vector<std::string> vocab = reader_.read_strings("/vocab");
  tokenizer_ =
      make_tokenizer(reader_.string_attribute("/", "tokenizer"), Vocabulary(vocab, special_names(reader_, vocab), path));
  provenance_ = reader_.has_attribute("/", "provenance") ? reader_.string_attribute("/", "provenance") : "";
  has_labels_ = reader_.has("/labels");
  if (tokens() > kHeldTokens) return;
  tokens_ = reader_.read<std::int32_t>("/tokens");
  if (has_labels_) labels_ = reader_.read<std::int32_t>("/labels");
}

void Corpus::check_structure() const {
  const std::string& file = path();
  check(offsets_.size() == splits_.size() + 1 && offsets_.front() == 0 && std::is_sorted(offsets_.begin(), offsets_.end()),
        ExitCode::kData, "{}: /offsets does not rise from 0 in {} steps; prepare the corpus again", file, splits_.size());
  for (const char* dataset : {"/tokens", "/labels"}) {
    if (dataset == std::string("/labels") && !reader_.has(dataset)) continue;
    const h5::DatasetInfo info = reader_.info(dataset);
    check(info.shape.size() == 1 && static_cast<std::uint64_t>(info.size()) == offsets_.back(), ExitCode::kData,
          "{}: {} has {} elements, /offsets ends at {}; prepare the corpus again", file, dataset, info.size(), offsets_.back());
  }
}

std::uint64_t Corpus::digest() const {
  if (reader_.sealed()) return reader_.digest();
  Digest digest;
  const auto add = [&](const auto& values) { digest.update(values.data(), values.size() * sizeof values[0]); };
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;
  for (const char* dataset : {"/tokens", "/labels"}) {
    if (!reader_.has(dataset)) continue;
    for (std::int64_t first = 0; first < tokens(); first += kPiece)
      add(reader_.read_range<std::int32_t>(dataset, first, std::min(kPiece, tokens() - first)));
  }
  add(offsets_);
  add(splits_);
  for (const std::string& token : vocabulary().tokens()) {
    const std::uint64_t length = token.size();
    digest.update(&length, sizeof length);
    add(token);
  }
  return digest.value();
}

std::int64_t Corpus::document_length(std::int64_t document) const {
  const auto index = static_cast<std::size_t>(document);
  return static_cast<std::int64_t>(offsets_.at(index + 1) - offsets_.at(index));
}

std::vector<std::int64_t> Corpus::documents_of(Split wanted) const {
  std::vector<std::int64_t> found;
  for (std::int64_t document = 0; document < documents(); ++document) {
    if (split(document) == wanted) found.push_back(document);
  }
  return found;
}

std::int64_t Corpus::tokens_of(Split wanted) const {
  std::int64_t sum = 0;
  for (const std::int64_t document : documents_of(wanted)) sum += document_length(document);
  return sum;
}

std::vector<std::int32_t> Corpus::range(const char* dataset, const std::vector<std::int32_t>& held, std::int64_t document,
                                        std::int64_t first, std::int64_t count) const {
  check(document >= 0 && document < documents() && first >= 0 && count >= 0 && first <= document_length(document) - count,
        ExitCode::kData, "{}: asked for tokens {} to {} of document {}; it has {} documents", path(), first, first + count,
        document, documents());
  const auto begin = static_cast<std::int64_t>(offsets_[static_cast<std::size_t>(document)]) + first;
  if (held.empty()) return reader_.read_range<std::int32_t>(dataset, begin, count);
  return {held.begin() + begin, held.begin() + begin + count};
}

std::vector<std::int32_t> Corpus::tokens(std::int64_t document, std::int64_t first, std::int64_t count) const {
  std::vector<std::int32_t> ids = range("/tokens", tokens_, document, first, count);
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < vocabulary().size(), ExitCode::kData, "{}: document {} holds token {}, the vocabulary has {} rows",
          path(), document, id, vocabulary().size());
  }
  return ids;
}

std::vector<std::int32_t> Corpus::labels(std::int64_t document, std::int64_t first, std::int64_t count) const {
  check(has_labels_, ExitCode::kData, "{}: has no labels of its own", path());
  std::vector<std::int32_t> ids = range("/labels", labels_, document, first, count);
  for (const std::int32_t id : ids) {
    check(id >= -1 && id < vocabulary().size(), ExitCode::kData, "{}: document {} holds label {}, the vocabulary has {} rows",
          path(), document, id, vocabulary().size());
  }
  return ids;
}

double Corpus::unigram_entropy(Split wanted) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocabulary().size()), 0);
  for (const std::int64_t document : documents_of(wanted)) {
    const std::int64_t length = document_length(document);
    for (std::int64_t first = 0; first < length; first += kHeldTokens) {
      for (const std::int32_t id : tokens(document, first, std::min(kHeldTokens, length - first)))
        ++counts[static_cast<std::size_t>(id)];
    }
  }
  return entropy_of_counts(counts);
}

CorpusWriter::CorpusWriter(const std::string& path, const Tokenizer& tokenizer, bool with_labels)
    : writer_(path),
      tokenizer_(tokenizer),
      wide_(tokenizer.vocabulary().size() > kNarrowVocabulary),
      with_labels_(with_labels) {
  if (wide_) {
    writer_.create_growing<std::uint32_t>("/tokens");
  } else {
    writer_.create_growing<std::uint16_t>("/tokens");
  }
  if (with_labels_) writer_.create_growing<std::int32_t>("/labels");
}

void CorpusWriter::add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels) {
  check(labels.size() == (with_labels_ ? tokens.size() : 0), ExitCode::kData, "a document of {} tokens has {} labels",
        tokens.size(), labels.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  offsets_.push_back(offsets_.back() + tokens.size());
  if (tokens_.size() >= kGathered) flush();
}

void CorpusWriter::flush() {
  if (wide_) {
    const std::vector<std::uint32_t> values(tokens_.begin(), tokens_.end());
    writer_.append<std::uint32_t>("/tokens", values);
  } else {
    std::vector<std::uint16_t> values;
    values.reserve(tokens_.size());
    for (const std::int32_t id : tokens_) values.push_back(static_cast<std::uint16_t>(id));
    writer_.append<std::uint16_t>("/tokens", values);
  }
  if (with_labels_) writer_.append<std::int32_t>("/labels", labels_);
  tokens_.clear();
  labels_.clear();
}

std::uint64_t CorpusWriter::publish(const std::vector<Split>& splits, const std::string& settings,
                                    const std::string& provenance) {
  check(static_cast<std::int64_t>(splits.size()) == documents(), ExitCode::kData, "{} splits for {} documents", splits.size(),
        documents());
  flush();
  const std::int64_t count = documents();
  writer_.write<std::uint64_t>("/offsets", offsets_, {count + 1});
  std::vector<std::uint8_t> codes;
  for (const Split split : splits) codes.push_back(static_cast<std::uint8_t>(split));
  writer_.write<std::uint8_t>("/splits", codes, {count});
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  writer_.write_strings("/vocab", vocabulary.tokens());
  writer_.attribute("/", "kind", std::string("corpus"));
  writer_.attribute("/", "version", kVersion);
  writer_.attribute("/", "tokenizer", tokenizer_.name());
  const SpecialIds& special = vocabulary.special();
  writer_.attribute("/", "pad_id", std::int64_t{special.pad});
  writer_.attribute("/", "unk_id", std::int64_t{special.unk});
  writer_.attribute("/", "cls_id", std::int64_t{special.cls});
  writer_.attribute("/", "sep_id", std::int64_t{special.sep});
  writer_.attribute("/", "mask_id", std::int64_t{special.mask});
  writer_.attribute("/", "settings", settings);
  writer_.attribute("/", "provenance", provenance);
  return writer_.publish();
}

}  // namespace gau
