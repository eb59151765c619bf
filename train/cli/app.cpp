// The frame of the program: declares the commands, parses, runs the chosen one, and turns every failure into one line on
// standard error and an exit code.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <locale>
#include <new>
#include <string>
#include <vector>

#include "framework/error.h"
#include "layers/method.h"
#include "train/cli/commands.h"
#include "train/cli/ranks.h"

namespace gau::cli {
namespace {

constexpr const char* kVersion = "gau 0.1.0";

constexpr const char* kExamples = R"(
Examples:
  gau prepare book.txt -o corpus.h5
  gau train config.toml --set data.corpus=corpus.h5 --set train.output=runs/first
  gau eval runs/first --data corpus.h5 --lengths 64,128,256 --methods rope,rope+infoscale --out runs/first
  gau fill runs/first "In the [MASK]eginning"

`gau COMMAND --help` explains a command.

Exit codes: 0 done, 64 usage, 65 bad data or configuration, 70 numeric failure, 74 input or output,
75 stopped on request, 76 a peer is lost, 78 configuration differs between ranks.)";

int report(ExitCode code, std::string message) {
  for (char& c : message)
    if (c == '\n' || c == '\r') c = ' ';
  std::cerr << fmt::format("gau: {}{}\n", rank_prefix(), message) << std::flush;
  // Others may be waiting for this rank. Leaving without an orderly end is what tells the launcher to end them; anything that
  // waits for them would hang.
  if (several_ranks()) _exit(static_cast<int>(code));
  return static_cast<int>(code);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : fmt::format(": did you mean '{}'?", near);
}

/// The line for a command line that CLI11 refused. What it could not place is named first: an unknown option often makes
/// another one look missing.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return fmt::format("{}; `gau --help` lists the commands", error.what());
  const CLI::App& command = *chosen.front();
  for (const std::string& extra : app.remaining(true)) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string name = extra.substr(0, extra.find('='));
    return fmt::format("{}: unknown option {}{}", command.get_name(), name, suggestion(name, option_names(command)));
  }
  return fmt::format("{}: {}; see `gau {} --help`", command.get_name(), error.what(), command.get_name());
}

/// Refuses a first word that is no command, with the nearest one.
void check_command(const CLI::App& app, int argc, const char* const* argv) {
  check(argc > 1, ExitCode::kUsage, "a command is needed; `gau --help` lists them");
  const std::string word = argv[1];
  if (word.starts_with("-")) return;
  const auto names = command_names(app);
  for (const auto& name : names)
    if (name == word) return;
  fail(ExitCode::kUsage, "unknown command '{}'{} (`gau --help` lists the commands)", word, suggestion(word, names));
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App app{"Trains and evaluates GAU-alpha, a masked language model of gated attention units", "gau"};
  Action action;
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersion);
  app.footer(kExamples);
  for (const auto add : {add_prepare, add_train, add_eval, add_inspect, add_calibrate, add_predict, add_fill, add_info, add_export, add_import, add_verify, add_gradcheck, add_bench, add_plan}) add(app, action);
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    fail(ExitCode::kUsage, "{}", usage_message(app, error));
  }
  return action();
}

/// Results on standard output that could not be written are a failure: a full disk or a closed pipe must not look like success.
void check_output() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  check(flushed && std::cout.good() && std::ferror(stdout) == 0, ExitCode::kIo, "standard output: cannot write: {}",
        std::strerror(errno));
}

}  // namespace

int run(int argc, const char* const* argv) {
  std::setlocale(LC_ALL, "C");
  std::locale::global(std::locale::classic());
  // Writing to a closed pipe, or beyond the largest file allowed, then fails with an error instead of ending the program in the
  // middle of a step.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = parse_and_run(argc, argv);
    check_output();
    finish_ranks();
    return code;
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kIo, "the machine has no more memory; use a smaller batch, length or model");
  } catch (const std::exception& error) {
    return report(ExitCode::kNumeric, fmt::format("internal error: {}", error.what()));
  }
}

}  // namespace gau::cli
