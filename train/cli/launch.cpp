#include "train/cli/launch.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <locale>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "layers/method.h"
#include "train/cli/validators.h"
#include "train/launch/launch_plan.h"
#include "train/launch/supervisor.h"

namespace gau::cli {
namespace {

using launch::JobEnd;
using launch::Request;

// Ranks on other hosts need a moment to notice that their launcher is gone before new ones use the same files; those here are
// gone by then.
constexpr double kRemotePause = 2;

constexpr const char* kFooter = R"(
The program and its arguments follow --. With one rank and no host file it is started directly, without MPI.

Examples:
  gau-launch -n 4 -- gau train config.toml --set data.corpus=corpus.h5 --set train.output=runs/dot
  gau-launch -n 4 --restarts 3 -- gau train config.toml --resume
  gau-launch --hostfile hosts --threads 8 --mpirun-args "--mca btl_tcp_if_include eth1" -- gau train config.toml
  gau-launch -n 2 --dry-run -- gau eval runs/dot --data corpus.h5

SIGTERM, SIGINT (Ctrl-C) and SIGHUP ask all ranks for a checkpoint and an end (exit code 75), and kill after --patience; a second
one kills at once. SIGUSR1 and SIGUSR2 are passed on. After a line of a rank that gave up, or when mpirun itself is stopped, every
process of the job is killed once --grace is over.

Starting again (--restarts) follows exit code 76 (a peer is lost) and an end by a signal. `gau train` then goes on from its newest
checkpoint. Never after 64, 65, 70, 74, 78, which would only come again.

The exit code is that of the job; 76 when it had to be ended by force.)";

struct Options {
  Request request;
  launch::WatchOptions watch;
  std::string mpirun_arguments;
  int restarts = 0;
  bool requeue = false;
  bool dry_run = false;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("-n,--ranks", options.request.ranks, "Ranks (default: the slots of the host file, else 1)")
      ->check(at_least(1));
  app.add_option("--threads", options.request.threads, "Threads of a rank (default: cores of a host / its ranks)")
      ->check(at_least(1));
  app.add_option("--restarts", options.restarts, "Starts after a failure, at most")->check(at_least(0))->capture_default_str();
  app.add_flag("--requeue", options.requeue, "Start again after exit code 75 too, unless gau-launch was told to stop");
  app.add_option("--grace", options.watch.grace, "Seconds that mpirun has to end the job after a rank gave up")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--patience", options.watch.patience, "Seconds for a checkpoint after a request to stop")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--hostfile", options.request.hostfile, "Hosts, one a line: `node1 slots=4` (Open MPI), `node1:4` (MPICH)");
  app.add_option("--mpirun", options.request.mpirun, "The mpirun to use")->capture_default_str();
  app.add_option("--mpirun-args", options.mpirun_arguments,
                 "More words for mpirun, in one argument; with --bind-to or --map-by among them nothing is bound by us");
  app.add_flag("--dry-run", options.dry_run, "Print the command and do nothing");
  app.footer(kFooter);
}

std::string unknown_option(const CLI::App& app) {
  for (const std::string& extra : app.remaining()) {
    if (extra.size() < 2 || extra[0] != '-') return fmt::format("'{}' stands before --, where only options do", extra);
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    const std::string name = extra.substr(0, extra.find('='));
    const std::string near = nearest_name(name, known);
    return fmt::format("unknown option {}{}", name, near.empty() ? "" : fmt::format(": did you mean '{}'?", near));
  }
  return "";
}

// False: help was asked for and printed.
bool parse(int argc, const char* const* argv, Options& options) {
  const char* const* const end = argv + argc;
  const char* const* const split = std::find(argv, end, std::string_view("--"));
  CLI::App app{"Runs gau on several ranks: starts mpirun, watches it, and leaves no process behind", "gau-launch"};
  app.allow_extras();
  declare(app, options);
  try {
    app.parse(static_cast<int>(split - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error);
      return false;
    }
    fail(ExitCode::kUsage, "{}; see `gau-launch --help`", error.what());
  }
  const std::string unknown = unknown_option(app);
  check(unknown.empty(), ExitCode::kUsage, "{}; see `gau-launch --help`", unknown);
  check(split != end && split + 1 != end, ExitCode::kUsage,
        "no program: put it behind --, as in `gau-launch -n 2 -- gau train config.toml`");
  options.request.program.assign(split + 1, end);
  options.request.mpirun_arguments = launch::split_words(options.mpirun_arguments);
  return true;
}

bool starts_again(const Options& options, const JobEnd& end) {
  if (end.stop_asked) return false;
  if (end.code == static_cast<int>(ExitCode::kStopped)) return options.requeue;
  return end.code == static_cast<int>(ExitCode::kPeerLost) || end.code > 128;
}

int run_job(Options& options) {
  const bool single = launch::is_single(options.request);
  const launch::MpiKind kind = single ? launch::MpiKind::kOpenMpi : launch::find_mpi(options.request.mpirun);
  launch::Command command = launch::job_command(options.request, kind, available_processors());
  if (options.dry_run) {
    fmt::print("{}\n", command.str());
    return static_cast<int>(ExitCode::kDone);
  }
  launch::Supervisor supervisor(options.watch);
  JobEnd end = supervisor.run(command);
  for (int restart = 1; restart <= options.restarts && starts_again(options, end); ++restart) {
    options.request.program = launch::restart_program(options.request.program);
    command = launch::job_command(options.request, kind, available_processors());
    log::info("gau-launch: the job ended with {}; start {} of {}: {}", end.code, restart, options.restarts, command.str());
    if (!supervisor.pause(options.request.hostfile.empty() ? 0 : kRemotePause)) break;
    end = supervisor.run(command);
  }
  return end.code;
}

}  // namespace

int launch(int argc, const char* const* argv) {
  std::setlocale(LC_ALL, "C");
  std::locale::global(std::locale::classic());
  signal(SIGPIPE, SIG_IGN);
  ExitCode code = ExitCode::kNumeric;
  std::string message;
  try {
    Options options;
    return parse(argc, argv, options) ? run_job(options) : static_cast<int>(ExitCode::kDone);
  } catch (const Error& error) {
    code = error.code();
    message = error.what();
  } catch (const std::exception& error) {
    message = fmt::format("internal error: {}", error.what());
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << fmt::format("gau-launch: {}\n", message);
  return static_cast<int>(code);
}

}  // namespace gau::cli
