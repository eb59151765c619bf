// gau prepare: text to tokens, or made data.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/prepare.h"
#include "data/synthetic.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/log.h"
#include "train/cli/commands.h"

namespace gau::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(
Examples:
  gau prepare book.txt -o corpus.h5                           a document a line, a token a character
  gau prepare chapters/*.txt -o corpus.h5 --format document   a document a file
  zstdcat news.jsonl.zst | gau prepare - -o news.h5 --format jsonl --field body --skip-bad
  gau prepare test.txt -o test.h5 --vocab corpus.h5 --valid 0 --test 1
  gau prepare book.txt --check                                a report, nothing written
  gau prepare --synthetic markov -o corpus.h5                 no text needed
  gau prepare --synthetic recall -o far.h5 --length 64,4096 --distances 1,32,64,256,1024,4096 --valid 0 --test 1

Text is UTF-8, plain or packed (.gz, .zst). Lines end with LF, CRLF or CR. Nothing is normalised. --on-invalid says what
becomes of bytes that are not UTF-8: replaced by U+FFFD, left out (skip), or an error. Documents of blanks alone are left
out and counted.)";

struct Arguments {
  PrepareOptions prepare;
  SyntheticOptions synthetic;
  std::string synthetic_name;
  std::string format = "lines";
  std::string on_invalid = "replace";
  bool json = false;
  bool quiet = false;
};

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json file_json(const FileReport& file) {
  const TextStatistics& text = file.text;
  return {{"name", text.name},
          {"bytes", text.bytes},
          {"lines", text.lines},
          {"documents", text.documents},
          {"empty", text.empty},
          {"tokens", file.tokens},
          {"unknown", file.unknown},
          {"unknown_rate", share(file.unknown, file.tokens)},
          {"invalid_bytes", text.invalid_bytes},
          {"invalid_places", text.invalid_places},
          {"carriage_returns", text.carriage_returns},
          {"skipped", text.skipped.empty() ? Json::object() : Json(text.skipped)}};
}

Json report_json(const PrepareReport& report, const std::string& output) {
  Json json{{"output", output.empty() ? Json(nullptr) : Json(output)},
            {"documents", report.documents},
            {"tokens", report.tokens},
            {"vocab_size", report.vocab_size},
            {"duplicates", report.duplicates},
            {"unigram_entropy", report.unigram_entropy},
            {"digest", output.empty() ? Json(nullptr) : Json(digest_text(report.digest))}};
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
    const SplitReport& part = report.splits[static_cast<std::size_t>(split)];
    json["splits"][name_of(split)] = {{"documents", part.documents}, {"tokens", part.tokens}};
  }
  json["files"] = Json::array();
  for (const FileReport& file : report.files) json["files"].push_back(file_json(file));
  return json;
}

void print_report(const PrepareReport& report, const std::string& output) {
  for (const FileReport& file : report.files) {
    const TextStatistics& text = file.text;
    fmt::print("{}: {} documents, {} tokens, {:.3f} % [UNK], {} empty, {} invalid bytes, {} CR\n", text.name, text.documents,
               file.tokens, 100 * share(file.unknown, file.tokens), text.empty, text.invalid_bytes, text.carriage_returns);
  }
  fmt::print("documents {}, tokens {}, vocabulary {}, duplicates {}, unigram entropy {:.3f} nats\n", report.documents,
             report.tokens, report.vocab_size, report.duplicates, report.unigram_entropy);
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
    const SplitReport& part = report.splits[static_cast<std::size_t>(split)];
    fmt::print("{}: {} documents, {} tokens\n", name_of(split), part.documents, part.tokens);
  }
  if (!output.empty()) fmt::print("wrote {}, digest {}\n", output, digest_text(report.digest));
}

int run_prepare(Arguments& arguments) {
  log::set_quiet(arguments.quiet);
  PrepareOptions& options = arguments.prepare;
  PrepareReport report;
  if (arguments.synthetic_name.empty()) {
    options.text.format = parse_text_format(arguments.format);
    options.text.on_invalid = parse_on_invalid(arguments.on_invalid);
    report = prepare(options);
  } else {
    check(options.inputs.empty(), ExitCode::kUsage, "--synthetic makes its own data; leave out the {} text files",
          options.inputs.size());
    check(!options.check_only, ExitCode::kUsage, "--check looks at text; --synthetic has none");
    SyntheticOptions& synthetic = arguments.synthetic;
    synthetic.kind = parse_synthetic(arguments.synthetic_name);
    synthetic.output = options.output;
    synthetic.fractions = options.fractions;
    synthetic.seed = options.seed;
    report = make_synthetic(synthetic);
  }
  const std::string output = options.check_only ? "" : options.output;
  if (arguments.json) {
    std::cout << report_json(report, output).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else if (!arguments.quiet) {
    print_report(report, output);
  }
  return 0;
}

void add_text_options(CLI::App& command, Arguments& arguments) {
  PrepareOptions& options = arguments.prepare;
  command.add_option("text", options.inputs, "Text files; - is standard input");
  command.add_option("-o,--output", options.output, "Corpus to write");
  command.add_option("--format", arguments.format, "lines, document, jsonl or fasta")->capture_default_str();
  command.add_option("--field", options.text.field, "Field of a JSON object that holds the text")->capture_default_str();
  command.add_option("--tokenizer", options.tokenizer, "char or byte")->capture_default_str();
  command.add_option("--vocab", options.vocab_file,
                     "Vocabulary: a text file, a token a line, or a corpus (default: made from the text)");
  command.add_option("--vocab-size", options.vocab_size, "Rows of the made vocabulary at most; 0: no limit")
      ->capture_default_str();
  command.add_option("--min-count", options.min_count, "Leave rarer characters out of the made vocabulary")
      ->capture_default_str();
  command.add_option("--valid", options.fractions.valid, "Fraction of the documents for validation")->capture_default_str();
  command.add_option("--test", options.fractions.test, "Fraction of the documents for the test")->capture_default_str();
  command.add_option("--on-invalid", arguments.on_invalid, "Bytes that are not UTF-8: replace, skip or error")
      ->capture_default_str();
  command.add_flag("--skip-bad", options.text.skip_bad, "Leave out and count records that cannot be read");
  command.add_option("--seed", options.seed, "Chooses the documents of the splits, and made data")->capture_default_str();
  command.add_option("--pad-token", options.special.pad, "Name of the padding token")->capture_default_str();
  command.add_option("--unk-token", options.special.unk, "Name of the unknown token")->capture_default_str();
  command.add_option("--cls-token", options.special.cls, "Name of the first token of a sequence")->capture_default_str();
  command.add_option("--sep-token", options.special.sep, "Name of the separator token")->capture_default_str();
  command.add_option("--mask-token", options.special.mask, "Name of the mask token")->capture_default_str();
  command.add_flag("--check", options.check_only, "Report on the text and write nothing");
}

void add_synthetic_options(CLI::App& command, Arguments& arguments) {
  command.add_option("--synthetic", arguments.synthetic_name, "Make data instead of reading text: recall or markov");
  command
      .add_option("--length", arguments.synthetic.lengths,
                  "Tokens of a made document; several, comma-separated: in turn (default: recall 64, markov 4096)")
      ->delimiter(',');
  command.add_option("--documents", arguments.synthetic.documents, "Made documents (default: recall 20000, markov 512)");
  command.add_option("--facts", arguments.synthetic.facts, "Facts, and queries, of a recall document")->capture_default_str();
  command.add_flag("--dense", arguments.synthetic.dense, "Recall among many facts that are not asked for");
  command
      .add_option("--distances", arguments.synthetic.distances,
                  "Upper ends of distance buckets that facts and queries of recall are spread over evenly, such as "
                  "1,32,64,256,1024,4096 (default: uniform places)")
      ->delimiter(',');
}

}  // namespace

void add_prepare(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("prepare", "Text to a corpus of tokens");
  command->footer(kExamples);
  const auto arguments = std::make_shared<Arguments>();
  add_text_options(*command, *arguments);
  add_synthetic_options(*command, *arguments);
  command->add_flag("--json", arguments->json, "Report as one JSON object on standard output");
  command->add_flag("--quiet", arguments->quiet, "No report, no progress");
  command->callback([arguments, &action] { action = [arguments] { return run_prepare(*arguments); }; });
}

}  // namespace gau::cli
