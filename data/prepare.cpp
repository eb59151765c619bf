// Two passes over the text: the first counts for the vocabulary (left out when there is one), the second writes tokens.
#include "data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "data/spool.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/log.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kProgressBytes = std::int64_t{64} << 20;
/// Shares above which a warning is due.
constexpr double kManyDuplicates = 0.1;
constexpr double kManyUnknown = 0.05;

void check_options(const PrepareOptions& options) {
  check_tokenizer_name(options.tokenizer);
  check_fractions(options.fractions);
  check(!options.inputs.empty(), ExitCode::kUsage, "no text was named; give files, or - for standard input");
  check(std::count(options.inputs.begin(), options.inputs.end(), "-") <= 1, ExitCode::kUsage,
        "standard input (-) was named twice");
  check(options.vocab_size >= 0 && options.min_count >= 0, ExitCode::kUsage, "--vocab-size and --min-count must be at least 0");
  const bool sized = options.vocab_size > 0 || options.min_count > 1;
  check(!sized || options.vocab_file.empty(), ExitCode::kUsage,
        "--vocab-size and --min-count build a vocabulary, --vocab gives one; leave out one of them");
  check(!sized || options.tokenizer != "byte", ExitCode::kUsage,
        "--vocab-size and --min-count do not apply to --tokenizer byte: it has a row for each of 256 bytes");
  if (options.check_only) return;
  check(!options.output.empty(), ExitCode::kUsage, "no output was named; give -o corpus.h5, or --check to write nothing");
  std::error_code error;
  for (const std::string& input : options.inputs) {
    check(!fs::equivalent(input, options.output, error), ExitCode::kUsage,
          "{}: is an input and would be overwritten; name another output", options.output);
  }
  check(options.vocab_file.empty() || !fs::equivalent(options.vocab_file, options.output, error), ExitCode::kUsage,
        "{}: is the vocabulary and would be overwritten; name another output", options.output);
  const fs::path parent = fs::path(options.output).parent_path();
  check(parent.empty() || fs::is_directory(parent, error), ExitCode::kIo, "{}: the directory {} does not exist", options.output,
        parent.string());
}

/// Says now and then how far a large input has been read.
class Progress {
 public:
  Progress(const char* what, const Spool& input) : what_(what), name_(input.name()) {
    std::error_code error;
    size_ = static_cast<std::int64_t>(fs::file_size(input.path(), error));
    if (error) size_ = 0;
  }
  void at(std::int64_t bytes) {
    if (bytes < next_) return;
    next_ = bytes + kProgressBytes;
    const double share = size_ > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(size_) : 0;
    log::info("{} {}: {} MB, {:.0f} %", what_, name_, bytes >> 20, share);
  }

 private:
  const char* what_;
  std::string name_;
  std::int64_t size_ = 0;
  std::int64_t next_ = kProgressBytes;
};

std::unique_ptr<Tokenizer> tokenizer_for(const PrepareOptions& options, const std::vector<Spool>& inputs) {
  if (!options.vocab_file.empty()) {
    return make_tokenizer(options.tokenizer, Vocabulary::from_file(options.vocab_file, options.special));
  }
  if (options.tokenizer == "byte") return make_tokenizer("byte", ByteTokenizer::make_vocabulary(options.special));
  check(options.tokenizer == "char", ExitCode::kUsage, "--tokenizer {}: needs a vocabulary: --vocab FILE", options.tokenizer);
  VocabularyBuilder builder;
  std::int64_t documents = 0;
  for (const Spool& input : inputs) {
    TextReader reader(input.path(), input.name(), options.text);
    Progress progress("counting", input);
    for (std::string document; reader.next(document); ++documents) {
      builder.add(document);
      progress.at(reader.consumed());
    }
  }
  // Without any text the second pass refuses, with all counts; until then any vocabulary will do.
  if (documents == 0) builder.add(" ");
  return make_tokenizer("char", builder.build(options.vocab_size, options.min_count, options.special));
}

/// What is gathered while documents go by.
struct Gathered {
  PrepareReport report;
  std::vector<std::int64_t> counts;   ///< of each token
  std::vector<std::int64_t> lengths;  ///< of each document
  std::unordered_set<std::uint64_t> seen;
  Digest text_digest;
};

void take_document(const std::string& document, const Tokenizer& tokenizer, FileReport& file, CorpusWriter* writer,
                   Gathered& all) {
  const std::vector<std::int32_t> ids = tokenizer.encode(document);
  const std::int32_t unknown = tokenizer.vocabulary().special().unk;
  for (const std::int32_t id : ids) ++all.counts[static_cast<std::size_t>(id)];
  file.unknown += std::count(ids.begin(), ids.end(), unknown);
  file.tokens += static_cast<std::int64_t>(ids.size());
  if (!all.seen.insert(xxh64(document.data(), document.size())).second) ++all.report.duplicates;
  const std::uint64_t size = document.size();
  all.text_digest.update(&size, sizeof size);
  all.text_digest.update(document.data(), document.size());
  all.lengths.push_back(static_cast<std::int64_t>(ids.size()));
  if (writer != nullptr) writer->add(ids);
}

void read_all(const PrepareOptions& options, const std::vector<Spool>& inputs, const Tokenizer& tokenizer, CorpusWriter* writer,
              Gathered& all) {
  all.counts.assign(static_cast<std::size_t>(tokenizer.vocabulary().size()), 0);
  for (const Spool& input : inputs) {
    TextReader reader(input.path(), input.name(), options.text);
    Progress progress("reading", input);
    FileReport file;
    for (std::string document; reader.next(document);) {
      take_document(document, tokenizer, file, writer, all);
      progress.at(reader.consumed());
    }
    file.text = reader.statistics();
    all.report.documents += file.text.documents;
    all.report.tokens += file.tokens;
    all.report.files.push_back(std::move(file));
  }
}

std::int64_t skipped_records(const TextStatistics& text) {
  std::int64_t sum = 0;
  for (const auto& [reason, count] : text.skipped) sum += count;
  return sum;
}

void warn_about_file(const FileReport& file) {
  const TextStatistics& text = file.text;
  for (const std::string& place : text.invalid_places) log::warn("{}: not UTF-8", place);
  if (text.invalid_bytes > 0) log::warn("{}: {} bytes are not UTF-8", text.name, text.invalid_bytes);
  if (text.lone_returns > 0) log::warn("{}: {} lines end with a lone CR; they were split there", text.name, text.lone_returns);
  for (const auto& [reason, count] : text.skipped) log::warn("{}: {} records left out: {}", text.name, count, reason);
  if (text.documents == 0) log::warn("{}: no documents in it ({} bytes, {} empty)", text.name, text.bytes, text.empty);
  if (static_cast<double>(file.unknown) > kManyUnknown * static_cast<double>(file.tokens)) {
    log::warn("{}: {:.1f} % of its tokens are unknown to the vocabulary", text.name,
              100.0 * static_cast<double>(file.unknown) / static_cast<double>(file.tokens));
  }
}

void warn_about_all(const PrepareOptions& options, const PrepareReport& report) {
  if (static_cast<double>(report.duplicates) > kManyDuplicates * static_cast<double>(report.documents)) {
    log::warn("{} of {} documents repeat an earlier one; the unigram entropy is {:.3f} nats", report.duplicates,
              report.documents, report.unigram_entropy);
  }
  const char* advice = options.text.format == TextFormat::kDocument ? ", or use --format lines" : "";
  const auto missing = [&](double fraction, Split split) {
    if (fraction <= 0 || report.splits[static_cast<std::size_t>(split)].documents > 0) return;
    log::warn("{} documents are too few for a {} split; give more{}", report.documents, name_of(split), advice);
  };
  missing(options.fractions.valid, Split::kValid);
  missing(options.fractions.test, Split::kTest);
}

void check_any_tokens(const PrepareReport& report) {
  if (report.tokens > 0) return;
  std::int64_t empty = 0;
  std::int64_t bytes = 0;
  std::int64_t skipped = 0;
  for (const FileReport& file : report.files) {
    empty += file.text.empty;
    bytes += file.text.bytes;
    skipped += skipped_records(file.text);
  }
  fail(ExitCode::kData,
       "no usable text: {} files, {} bytes, 0 documents, {} empty ones, {} records left out; check the files and --format",
       report.files.size(), bytes, empty, skipped);
}

std::string settings_json(const PrepareOptions& options) {
  return Json{
      {"vocab_size", options.vocab_size}, {"min_count", options.min_count}, {"given_vocabulary", !options.vocab_file.empty()}}
      .dump();
}

std::string provenance_json(const PrepareOptions& options, const Gathered& all) {
  static constexpr const char* kFormats[] = {"lines", "document", "jsonl", "fasta"};
  std::int64_t invalid = 0;
  std::int64_t unknown = 0;
  for (const FileReport& file : all.report.files) {
    invalid += file.text.invalid_bytes;
    unknown += file.unknown;
  }
  return Json{{"source", "text"},
              {"files", all.report.files.size()},
              {"format", kFormats[static_cast<std::size_t>(options.text.format)]},
              {"text_digest", digest_text(all.text_digest.value())},
              {"invalid_bytes", invalid},
              {"unknown_tokens", unknown},
              {"duplicates", all.report.duplicates},
              {"valid", options.fractions.valid},
              {"test", options.fractions.test},
              {"seed", options.seed}}
      .dump();
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  check_options(options);
  std::vector<Spool> inputs;
  for (const std::string& input : options.inputs) inputs.emplace_back(input);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_for(options, inputs);
  std::optional<CorpusWriter> writer;
  if (!options.check_only) writer.emplace(options.output, *tokenizer, false);

  Gathered all;
  read_all(options, inputs, *tokenizer, writer ? &*writer : nullptr, all);
  PrepareReport& report = all.report;
  report.vocab_size = tokenizer->vocabulary().size();
  for (const FileReport& file : report.files) warn_about_file(file);
  check_any_tokens(report);
  report.unigram_entropy = entropy_of_counts(all.counts);
  const std::vector<Split> splits = assign_splits(report.documents, options.fractions, options.seed);
  for (std::size_t document = 0; document < splits.size(); ++document) {
    SplitReport& split = report.splits[static_cast<std::size_t>(splits[document])];
    ++split.documents;
    split.tokens += all.lengths[document];
  }
  warn_about_all(options, report);
  if (writer) report.digest = writer->publish(splits, settings_json(options), provenance_json(options, all));
  return std::move(all.report);
}

}  // namespace gau
