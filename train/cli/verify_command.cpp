// gau verify: one line a thing, ok or what is wrong with it.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/log.h"
#include "train/cli/commands.h"
#include "train/verify.h"

namespace gau::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Takes a corpus, a model, an optimizer file, a checkpoint, a run (all its checkpoints, links, configuration and metrics), a
directory made by `gau export`, a safetensors file or a configuration. Ends with 0 when all is well, 65 when something is
damaged or inconsistent, 74 when something cannot be read.

Examples:
  gau verify corpus.h5 runs/first
  gau verify hf --json)";

struct Options {
  std::vector<std::string> paths;
  bool json = false;
  bool quiet = false;
};

Json to_json(const std::vector<Finding>& findings, bool ok) {
  Json json{{"ok", ok}, {"things", Json::array()}};
  for (const Finding& finding : findings)
    json["things"].push_back({{"path", finding.path}, {"kind", finding.kind}, {"ok", finding.ok()}, {"text", finding.text}});
  return json;
}

/// An error names the path itself, which the line has in front already.
std::string line_of(const Finding& finding) {
  if (finding.ok()) return fmt::format("{}: ok: {}, {}", finding.path, finding.kind, finding.text);
  std::string text = finding.text;
  if (text.starts_with(finding.path)) {
    text.erase(0, finding.path.size());
    text.erase(0, text.find_first_not_of(":/ "));
  }
  return fmt::format("{}: BAD: {}", finding.path, text);
}

int run(const Options& options) {
  log::set_quiet(options.quiet);
  std::vector<Finding> findings;
  for (const std::string& path : options.paths)
    for (Finding& finding : verify(path)) findings.push_back(std::move(finding));
  ExitCode code = ExitCode::kDone;
  for (const Finding& finding : findings)
    if (!finding.ok() && code != ExitCode::kData) code = finding.code;
  if (options.json) {
    std::cout << to_json(findings, code == ExitCode::kDone).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    for (const Finding& finding : findings)
      if (!finding.ok() || !options.quiet) std::cout << line_of(finding) << '\n';
  }
  return static_cast<int>(code);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Check digests and structure of files and directories");
  command->add_option("PATH", options->paths, "Corpus, model, checkpoint, run, export or configuration")->required();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "Only lines about what is wrong");
  command->footer(kFooter);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
