// gau inspect: what attention looks like, by method, length and layer.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/cli/commands.h"
#include "train/cli/run_corpus.h"
#include "train/cli/validators.h"
#include "train/config_values.h"
#include "train/eval_corpus.h"
#include "train/inspect_report.h"
#include "train/model_io.h"

namespace gau::cli {
namespace {

struct Options {
  std::string model;
  std::string data;
  std::string text;
  std::string split;
  std::string lengths;
  std::string methods;
  std::string out;
  std::int64_t sequences = 4;
  std::int64_t seed = 0;
  int threads = 0;
  bool json = false;
  bool quiet = false;
  InspectOptions inspect;
};

constexpr const char* kFooter = R"(
Writes inspect.csv, inspect.json, inspect.h5 and pictures into --out:
  entropy   mean row entropy of attention against length
  distance  mean distance of attended keys against length
  angles    angles between q and k, of random pairs and of attended ones, at the longest length
  heatmap   attention of the first sequence at the longest length
inspect.csv also holds the weight on the diagonal and Lambda, max over ranks of ln(rank) / gap to the largest logit.

Example:
  gau inspect runs/first --data corpus.h5 --lengths 64,256,1024 --methods rope,rope+infoscale --out inspected)";

std::vector<std::int64_t> lengths_of(const std::string& text) {
  std::vector<std::int64_t> lengths;
  try {
    if (!text.empty()) parse_value(text, lengths);
  } catch (const Error& error) {
    fail(ExitCode::kUsage, "--lengths {}: {}", text, error.what());
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  check(lengths.empty() || lengths.front() >= 2, ExitCode::kUsage, "--lengths {}: a sequence has at least 2 tokens", text);
  return lengths;
}

/// The text's tokens as the one window; lengths are its own when none are given.
std::vector<TokenWindow> windows_of_text(const Options& options, const LoadedModel& loaded, const std::string& file,
                                         std::vector<std::int64_t>& lengths) {
  TokenWindow ids = loaded.text.make(file)->encode(options.text, true);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check(tokens >= 2, ExitCode::kUsage, "--text: {} tokens; a sequence has at least 2", tokens);
  if (lengths.empty()) lengths = {tokens};
  check(lengths.back() <= tokens, ExitCode::kUsage, "--lengths {}: the text has {} tokens", lengths.back(), tokens);
  return {ids};
}

std::vector<TokenWindow> windows_of_corpus(const Options& options, const LoadedModel& loaded, const std::string& file,
                                           std::vector<std::int64_t>& lengths) {
  std::optional<Split> wanted;
  if (!options.split.empty()) wanted = parse_split(options.split);
  const Corpus corpus(options.data);
  check_vocabulary(loaded.model.config(), loaded.text, file, corpus.vocabulary().tokens(), corpus.path());
  const EvalCorpus documents = read_eval_corpus(corpus, choose_split(corpus, wanted));
  if (lengths.empty()) {
    lengths = default_lengths(documents, Protocol::kFixedTarget, loaded.model.config().attention.train_length);
  }
  return spaced_windows(documents.documents, lengths.back(), options.sequences, corpus.path());
}

int run(Options options) {
  if (options.quiet) log::set_quiet(true);
  if (options.threads > 0) set_threads(options.threads);
  check(options.data.empty() || options.text.empty(), ExitCode::kUsage, "inspect: give either --data FILE or --text STRING");
  if (options.text.empty()) options.data = corpus_or_run_corpus(options.data, options.model);
  options.inspect.lengths = lengths_of(options.lengths);
  options.inspect.seed = static_cast<std::uint64_t>(options.seed);
  const std::string file = resolve_model_path(options.model);
  const LoadedModel loaded = load_model(file);
  if (!options.methods.empty()) options.inspect.methods = parse_methods(options.methods, loaded.model.config());
  const std::vector<TokenWindow> windows = options.data.empty()
                                               ? windows_of_text(options, loaded, file, options.inspect.lengths)
                                               : windows_of_corpus(options, loaded, file, options.inspect.lengths);
  Inspection inspection = inspect(loaded.model, windows, options.inspect);
  inspection.model = options.model;
  inspection.source = options.data.empty() ? "--text" : options.data;
  write_inspection(inspection, options.out);
  log::info("written to {}: inspect.csv, inspect.json, inspect.h5, pictures", options.out);
  if (options.json) {
    std::cout << to_json(inspection).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << text_table(inspection);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Attention entropy, reach and angles by method, length and layer");
  command->add_option("MODEL", options->model, "Run directory, checkpoint or model.h5")->required();
  command->add_option("--data", options->data, "Corpus [the one of the run]");
  command->add_option("--text", options->text, "Text to look at, instead of a corpus");
  command->add_option("--split", options->split, "train, valid or test [test, else valid]");
  command->add_option("--lengths", options->lengths,
                      "Lengths, comma-separated [L_train, doubled while documents are long enough; the text's own]");
  command->add_option("--methods", options->methods, "Methods, comma-separated, or all [the model's own]");
  command->add_option("--sequences", options->sequences, "Sequences of the corpus, evenly spaced")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--rows", options->inspect.rows, "Rows measured in each sequence, evenly spaced")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Decides the pairs whose angles are measured")
      ->check(at_least(0))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads [all processors]")->check(at_least(1));
  command->add_option("--out", options->out, "Directory for the results")->required();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer(kFooter);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
