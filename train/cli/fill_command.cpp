// gau fill: what the model would write at [MASK].
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/cli/commands.h"
#include "train/cli/validators.h"
#include "train/fill.h"
#include "train/model_io.h"

namespace gau::cli {
namespace {

struct Options {
  std::string model;
  std::string text;
  std::string method;
  std::int64_t top = 5;
  int threads = 0;
  bool json = false;
  bool quiet = false;
};

/// A token as it can be printed on a line of its own.
std::string visible(const std::string& token) {
  std::string out;
  for (char c : token) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

nlohmann::ordered_json to_json(const Options& options, const Method& method, const FilledText& filled,
                               const Vocabulary& vocabulary) {
  nlohmann::ordered_json out{
      {"model", options.model}, {"method", method.name}, {"text", options.text}, {"filled", filled.best}};
  out["masks"] = nlohmann::ordered_json::array();
  for (const FilledMask& mask : filled.masks) {
    nlohmann::ordered_json entry{{"position", mask.position}, {"candidates", nlohmann::ordered_json::array()}};
    for (const FillCandidate& candidate : mask.candidates) {
      entry["candidates"].push_back(
          {{"token", vocabulary.token(candidate.id)}, {"id", candidate.id}, {"probability", candidate.probability}});
    }
    out["masks"].push_back(entry);
  }
  return out;
}

int run(const Options& options) {
  if (options.quiet) log::set_quiet(true);
  if (options.threads > 0) set_threads(options.threads);
  const std::string file = resolve_model_path(options.model);
  const LoadedModel loaded = load_model(file);
  const std::unique_ptr<Tokenizer> tokenizer = loaded.text.make(file);
  const ModelConfig& config = loaded.model.config();
  const Method method = resolve(options.method.empty() ? Method{} : parse_method(options.method), config);
  const FilledText filled = fill_masks(loaded.model, *tokenizer, method, options.text, options.top);
  if (options.json) {
    std::cout << to_json(options, method, filled, tokenizer->vocabulary())
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
    return static_cast<int>(ExitCode::kDone);
  }
  for (const FilledMask& mask : filled.masks) {
    std::cout << "token " << mask.position << ":\n";
    for (const FillCandidate& candidate : mask.candidates) {
      std::cout << fmt::format("  {:.4f}  '{}'\n", candidate.probability, visible(tokenizer->vocabulary().token(candidate.id)));
    }
  }
  std::cout << filled.best << '\n';
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_fill(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("fill", "Guess the tokens at [MASK] in a text");
  command->add_option("MODEL", options->model, "Run directory, checkpoint or model.h5")->required();
  command->add_option("TEXT", options->text, "Text with one [MASK] or more")->required();
  command->add_option("--top", options->top, "Candidates to show")->check(at_least(1))->capture_default_str();
  command->add_option("--methods", options->method, "One method [the model's own]");
  command->add_option("--threads", options->threads, "Threads [all processors]")->check(at_least(1));
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer("Example:\n  gau fill runs/first \"In the [MASK]eginning\" --top 3");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
