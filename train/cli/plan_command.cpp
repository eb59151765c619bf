// gau plan: what a training will need, before it is started.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/corpus.h"
#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/cli/commands.h"
#include "train/cli/validators.h"
#include "train/machine_rates.h"
#include "train/plan.h"
#include "train/precision.h"

namespace gau::cli {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> settings;
  int ranks = 1;
  int threads = 0;
  double gbit = 10;
  double latency = 50;
  double rate = 0;
  double memory_rate = 0;
  bool json = false;
  bool quiet = false;
};

nlohmann::ordered_json parts_json(const std::vector<PlanPart>& parts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const PlanPart& part : parts) json[part.name] = part.value;
  return json;
}

nlohmann::ordered_json to_json(const Plan& plan, const PlanRequest& request) {
  return {{"ranks", request.ranks},
          {"parameters", plan.parameters},
          {"bandwidth_gbit", request.bandwidth / 1e9},
          {"latency_seconds", request.latency},
          {"product_rate", request.product_rate},
          {"memory_rate", request.memory_rate},
          {"memory_bytes", plan.memory_bytes()},
          {"memory", parts_json(plan.memory)},
          {"step_seconds", plan.step_seconds()},
          {"time", parts_json(plan.time)},
          {"exchange_seconds", plan.exchange_seconds},
          {"hidden_share", plan.hidden_share()},
          {"tokens_per_second", plan.tokens / plan.step_seconds()},
          {"speed_up", request.ranks * plan.efficiency(request.ranks)},
          {"efficiency", plan.efficiency(request.ranks)}};
}

void print_parts(const char* title, const char* unit, double scale, const std::vector<PlanPart>& parts, double whole) {
  fmt::print("{:<24} {:>10}\n", title, unit);
  for (const PlanPart& part : parts) {
    if (part.value > 0) fmt::print("  {:<22} {:>10.2f} {:>5.1f} %\n", part.name, part.value * scale, 100 * part.value / whole);
  }
  fmt::print("  {:<22} {:>10.2f}\n", "all", whole * scale);
}

void print(const Plan& plan, const PlanRequest& request) {
  fmt::print("{} parameters, {} ranks at {:g} Gbit/s; a rank: products {:.1f} GFLOP/s, memory {:.1f} GB/s\n", plan.parameters,
             request.ranks, request.bandwidth / 1e9, request.product_rate / 1e9, request.memory_rate / 1e9);
  print_parts("memory of a rank", "MiB", 1.0 / (1 << 20), plan.memory, plan.memory_bytes());
  print_parts("time of a step", "ms", 1e3, plan.time, plan.step_seconds());
  if (request.ranks > 1) {
    fmt::print("exchange: {:.2f} ms, {:.0f} % of it behind backward\n", plan.exchange_seconds * 1e3, 100 * plan.hidden_share());
  }
  fmt::print("{:.0f} tokens/s, {:.2f} times one rank (efficiency {:.0f} %)\n", plan.tokens / plan.step_seconds(),
             request.ranks * plan.efficiency(request.ranks), 100 * plan.efficiency(request.ranks));
}

int plan_training(const Options& options) {
  log::set_quiet(options.quiet);
  if (options.threads > 0) set_threads(options.threads);
  Config config = load_config(options.config, options.settings);
  if (config.model.vocab_size == 0 && !config.data.corpus.empty())
    config.model.vocab_size = Corpus(config.data.corpus).vocabulary().size();
  PlanRequest request;
  request.ranks = options.ranks;
  request.bandwidth = options.gbit * 1e9;
  request.latency = options.latency * 1e-6;
  const Precision precision(config.train.dtype);
  request.product_rate = options.rate > 0 ? options.rate * 1e9 : measured_product_rate(storage_type(config.train.dtype));
  request.memory_rate = options.memory_rate > 0 ? options.memory_rate * 1e9 : measured_memory_rate();
  const Plan plan = make_plan(config, request);
  if (options.json) {
    fmt::print("{}\n", to_json(plan, request).dump());
  } else {
    print(plan, request);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "Forecast memory of a rank and time of a step");
  command->add_option("config", options->config, "Configuration file (TOML)")->required();
  command->add_option("--set", options->settings, "table.key=value, as for train; may be repeated")->allow_extra_args(false);
  command->add_option("--ranks", options->ranks, "Ranks")->check(at_least(1))->capture_default_str();
  command->add_option("--bandwidth", options->gbit, "Gbit/s of a rank, in each direction")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--latency", options->latency, "Of a message, microseconds")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--rate", options->rate, "GFLOP/s of a rank's matrix products (default: measured here)")
      ->check(CLI::PositiveNumber);
  command->add_option("--memory-rate", options->memory_rate, "GB/s of a rank's memory (default: measured here)")
      ->check(CLI::PositiveNumber);
  command->add_option("--threads", options->threads, "Threads of what is measured here")->check(at_least(1));
  command->add_flag("--json", options->json, "One JSON object, bytes and seconds, on standard output");
  command->add_flag("--quiet", options->quiet, "No messages");
  command->footer(
      "Examples:\n"
      "  gau plan config.toml --ranks 8 --bandwidth 1\n"
      "  gau plan config.toml --set model.vocab_size=12000 --ranks 64 --rate 500 --memory-rate 50 --json\n\n"
      "P parameters of w bytes, R ranks, V shards, S = V / R, N layers, T tokens and M masked ones of a shard's micro-step,\n"
      "A micro-steps, F operations of a rank's products:\n"
      "  memory  P w each for parameters and gradients; moments 2 P w (ZeRO: / R); sums of shards P w log2 S;\n"
      "          packed weights 2 P w when S A > 1 (bf16: 4 P, f64: none);\n"
      "          activations w T ((N - 1) (3H + 6E + 4D) + 4H + 2E + 4D); logits 2 w M (vocabulary + 3E);\n"
      "          exchange P w (R - 1) / R; snapshot of a save P w (1 + 2 / R); validation w batch L (3H + 6E + 4D + 2 "
      "mask_prob V);\n"
      "          the program 36 MiB, MPI 8 MiB\n"
      "  time    F / (0.9 rate) + (6 activations S A + 2 P w S + 8 P w) / memory rate + exchange that is not hidden + "
      "control;\n"
      "          exchange 2 (R - 1) / R P w / bandwidth + buckets (2 latency + (R - 1) 10 us), of which all but the "
      "embedding's\n"
      "          part hides behind the last backward, 2/3 of the computation / (S A). docs/scaling.md says how near that "
      "comes.");
  command->callback([options, &action] { action = [options] { return plan_training(*options); }; });
}

}  // namespace gau::cli
