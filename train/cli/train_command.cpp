// gau train: trains a model as a configuration file says.
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/log.h"
#include "train/cli/commands.h"
#include "train/cli/ranks.h"
#include "train/cli/validators.h"
#include "train/training_run.h"

namespace gau::cli {

namespace {

struct Options {
  std::string config;
  std::vector<std::string> settings;
  std::string init_from;
  bool resume = false;
  bool overwrite = false;
  bool allow_new_data = false;
  std::int64_t check_replicas = 0;
  bool json = false;
  bool quiet = false;
};

nlohmann::ordered_json to_json(const TrainResult& result, const std::string& output) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  return {{"output", output},
          {"step", result.step},
          {"stopped", result.code == ExitCode::kStopped},
          {"parameters", result.parameters},
          {"loss", number(result.loss)},
          {"validation_loss", number(result.validation_loss)},
          {"best_loss", number(result.best_loss)},
          {"best_step", result.best_step},
          {"skipped_steps", result.skipped},
          {"digest", fmt::format("{:016x}", result.digest)},
          {"seconds", result.seconds}};
}

int train_model(const Options& options) {
  log::set_quiet(options.quiet);
  check(!(options.resume && options.overwrite), ExitCode::kUsage, "train: --resume and --overwrite contradict each other");
  check(!(options.resume && !options.init_from.empty()), ExitCode::kUsage,
        "train: --resume continues the run's own checkpoint; leave --init-from out");
  check(!options.allow_new_data || options.resume, ExitCode::kUsage, "train: --allow-new-data goes with --resume");
  ranks();  // from here on, error lines name the rank
  TrainRequest request;
  request.config = load_config(options.config, options.settings);
  request.resume = options.resume;
  request.overwrite = options.overwrite;
  request.allow_new_data = options.allow_new_data;
  request.init_from = options.init_from;
  request.check_replicas = options.check_replicas;
  const TrainResult result = train(request, ranks());
  if (options.json && ranks().rank() == 0) fmt::print("{}\n", to_json(result, request.config.train.output).dump());
  return static_cast<int>(result.code);
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->add_option("config", options->config, "Configuration file (TOML)")->required();
  command->add_option("--set", options->settings, "table.key=value, over the file and the environment; may be repeated")
      ->allow_extra_args(false);
  command->add_flag(
      "--resume", options->resume,
      "Continue the newest good checkpoint of the run directory; waits up to 10 seconds for a run that still ends there");
  command->add_flag("--allow-new-data", options->allow_new_data,
                    "With --resume: go on although the corpus is another one than the checkpoint's");
  command->add_flag("--overwrite", options->overwrite, "Start anew in a run directory that holds an earlier run");
  command->add_option("--init-from", options->init_from,
                      "Start from the parameters of a model: a run, a checkpoint or a model.h5");
  command
      ->add_option("--check-replicas", options->check_replicas,
                   "Compare the parameters of all ranks every so many steps [never]")
      ->check(at_least(0));
  command->add_flag("--json", options->json, "One JSON object about the result on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer(
      "Examples:\n"
      "  gau train config.toml --set data.corpus=corpus.h5 --set train.output=runs/dot\n"
      "  gau train config.toml --set attention.kind=cosine --set train.output=runs/cosine --init-from runs/dot\n"
      "  gau train config.toml --set data.corpus=corpus.h5 --set train.output=runs/dot --resume\n\n"
      "SIGUSR1, SIGTERM and Ctrl-C end the run after the step in progress and a checkpoint, with exit code 75; a second "
      "SIGTERM\n"
      "or Ctrl-C ends it at once. SIGUSR2 makes a checkpoint and goes on. One run has a directory at a time; a second one is "
      "refused (64).\n\n" +
      config_help());
  command->callback([options, &action] { action = [options] { return train_model(*options); }; });
}

}  // namespace gau::cli
