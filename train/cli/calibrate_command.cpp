// gau calibrate: fits the factors of the law `calibrated` on held-out text and writes a model that holds them.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/calibrate.h"
#include "train/cli/commands.h"
#include "train/cli/run_corpus.h"
#include "train/cli/validators.h"
#include "train/config_values.h"
#include "train/eval_corpus.h"
#include "train/model_io.h"

namespace gau::cli {
namespace {

struct Options {
  std::string model;
  std::string data;
  std::string split;
  std::string lengths;
  std::string out;
  int threads = 0;
  bool json = false;
  bool quiet = false;
  CalibrateOptions calibrate;
};

constexpr const char* kFooter = R"(
For each length and layer: the factor on the logits with which attention has the mean row entropy that it has at the
training length. `gau eval OUTPUT --methods calibrated` uses the factors, at the fitted lengths.

Example:
  gau calibrate runs/first --data corpus.h5 --lengths 128,256,512 -o calibrated.h5
  gau eval calibrated.h5 --data corpus.h5 --lengths 64,128,256,512 --methods rope,rope+calibrated)";

std::vector<std::int64_t> lengths_of(const std::string& text) {
  std::vector<std::int64_t> lengths;
  try {
    parse_value(text, lengths);
  } catch (const Error& error) {
    fail(ExitCode::kUsage, "--lengths {}: {}", text, error.what());
  }
  return lengths;
}

std::string text_of(const std::vector<CalibrationReport>& reports) {
  std::string out = "length  layer  factor  entropy: target  before  after\n";
  for (const CalibrationReport& report : reports) {
    for (std::size_t layer = 0; layer < report.target.size(); ++layer) {
      out += fmt::format("{:6}  {:5}  {:6.4f}  {:15.3f}  {:6.3f}  {:5.3f}\n", report.fitted.length, layer,
                         report.fitted.factors[layer], report.target[layer], report.before[layer], report.after[layer]);
    }
  }
  return out;
}

nlohmann::ordered_json json_of(const Options& options, const std::vector<CalibrationReport>& reports, std::uint64_t digest) {
  nlohmann::ordered_json out{{"output", options.out}, {"digest", fmt::format("{:016x}", digest)}};
  out["lengths"] = nlohmann::ordered_json::array();
  for (const CalibrationReport& report : reports) {
    out["lengths"].push_back({{"length", report.fitted.length},
                              {"factors", report.fitted.factors},
                              {"target", report.target},
                              {"before", report.before},
                              {"after", report.after}});
  }
  return out;
}

int run(Options options) {
  if (options.quiet) log::set_quiet(true);
  if (options.threads > 0) set_threads(options.threads);
  options.calibrate.lengths = lengths_of(options.lengths);
  std::optional<Split> wanted;
  if (!options.split.empty()) wanted = parse_split(options.split);
  const std::string file = resolve_model_path(options.model);
  const LoadedModel loaded = load_model(file);
  const Corpus corpus(corpus_or_run_corpus(options.data, options.model));
  check_vocabulary(loaded.model.config(), loaded.text, file, corpus.vocabulary().tokens(), corpus.path());
  const EvalCorpus documents = read_eval_corpus(corpus, choose_split(corpus, wanted));
  const auto reports = calibrate(loaded.model, documents.documents, corpus.path(), options.calibrate);
  const std::uint64_t digest = save_model(options.out, with_calibration(loaded.model, reports), loaded.text);
  log::info("written to {}", options.out);
  if (options.json) {
    std::cout << json_of(options, reports, digest).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << text_of(reports);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("calibrate", "Fit the factors of the law `calibrated` and store them with the model");
  command->add_option("MODEL", options->model, "Run directory, checkpoint or model.h5")->required();
  command->add_option("--data", options->data, "Corpus [the one of the run]");
  command->add_option("--lengths", options->lengths, "Lengths, comma-separated, above the training length")->required();
  command->add_option("--split", options->split, "train, valid or test [test, else valid]");
  command->add_option("--position", options->calibrate.position, "Position method to fit for [the model's own]");
  command->add_option("--tokens", options->calibrate.tokens, "Tokens of text at each length")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--rows", options->calibrate.rows, "Rows measured in each window")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads [all processors]")->check(at_least(1));
  command->add_option("-o,--output", options->out, "Model file to write")->required();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer(kFooter);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
