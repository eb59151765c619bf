// gau eval: lengths × methods on held-out documents, one model or several.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/cli/commands.h"
#include "train/cli/ranks.h"
#include "train/cli/run_corpus.h"
#include "train/cli/validators.h"
#include "train/config_values.h"
#include "train/eval_corpus.h"
#include "train/evaluator.h"
#include "train/model_io.h"
#include "train/precision.h"
#include "train/report.h"
#include "train/skip_option.h"

namespace gau::cli {
namespace {

struct Options {
  std::vector<std::string> models;
  std::vector<std::string> labels;
  std::string data;
  std::string split;
  std::string lengths;
  std::string methods;
  std::string protocol;
  std::string dtype = "f32";
  std::string skip = "exact";
  std::string sequence_parallel = "auto";
  std::string sequence_exchange = "gather";
  std::string out;
  std::int64_t targets = 0;
  std::int64_t stride = 0;
  std::int64_t train_length = 0;
  std::int64_t batch_tokens = 8192;
  std::int64_t seed = 0;
  int threads = 0;
  bool no_crop = false;
  bool json = false;
  bool quiet = false;
};

constexpr const char* kFooter = R"(
Protocols:
  fixed-target  the same tokens at every length, their context growing around them; beside it crop, the L_train window alone
  paper         the first L tokens of a document, one [MASK] at each position in turn: L passes a document
  labels        made data that says what to predict (the default there)

Example:
  gau eval runs/dot runs/cosine --data corpus.h5 --lengths 64,256,1024 --methods 'rope,rope+infoscale,window:w=63' --out results)";

std::vector<std::int64_t> parse_lengths(const std::string& text) {
  std::vector<std::int64_t> lengths;
  if (text.empty()) return lengths;
  try {
    parse_value(text, lengths);
  } catch (const Error& error) {
    fail(ExitCode::kUsage, "--lengths {}: {}", text, error.what());
  }
  return lengths;
}

/// The name of a run directory; what was given when that says more (a file, a checkpoint).
std::string label_of(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  const bool is_run = std::filesystem::is_directory(path / "checkpoints") && name != "." && name != "..";
  return is_run ? name : model;
}

std::vector<std::string> labels_of(const Options& options) {
  check(options.labels.empty() || options.labels.size() == options.models.size(), ExitCode::kUsage,
        "--label was given {} times for {} models", options.labels.size(), options.models.size());
  std::vector<std::string> labels = options.labels;
  if (labels.empty()) {
    for (const std::string& model : options.models) labels.push_back(label_of(model));
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      // Two runs of one name in different places are told apart by their paths.
      if (labels[i] == labels[k] && options.labels.empty()) {
        labels[i] = options.models[i];
        labels[k] = options.models[k];
      }
      check(labels[i] != labels[k], ExitCode::kUsage, "two models are called '{}'; give each its own --label", labels[i]);
    }
  }
  return labels;
}

Protocol choose_protocol(const Options& options, const Corpus& corpus) {
  if (options.protocol.empty()) return corpus.has_labels() ? Protocol::kLabels : Protocol::kFixedTarget;
  const Protocol protocol = parse_protocol(options.protocol);
  check((protocol == Protocol::kLabels) == corpus.has_labels(), ExitCode::kUsage, "--protocol {}: {} {}", options.protocol,
        corpus.path(), corpus.has_labels() ? "holds its own masks and labels; use --protocol labels" : "holds no labels");
  return protocol;
}

EvalOptions eval_options(const Options& options, Protocol protocol) {
  EvalOptions out;
  out.protocol = protocol;
  out.lengths = parse_lengths(options.lengths);
  out.targets = options.targets;
  out.stride = options.stride;
  out.train_length = options.train_length;
  out.seed = static_cast<std::uint64_t>(options.seed);
  out.batch_tokens = options.batch_tokens;
  out.crop = !options.no_crop;
  const SkipOption skip = parse_skip(options.skip);
  check(skip.known, ExitCode::kUsage, "--skip {}: say off, exact, or a tolerance between 0 and 1", options.skip);
  out.skip = skip.skip;
  out.sequence_parallel = parse_sequence_parallel(options.sequence_parallel);
  parse_value(options.sequence_exchange, out.sequence_exchange);
  return out;
}

Evaluation evaluate_one(const Options& options, const std::string& path, const std::string& label, const Corpus& corpus,
                        const EvalCorpus& documents, EvalOptions eval) {
  const std::string file = resolve_model_path(path);
  const LoadedModel loaded = load_model(file, storage_type(parse_dtype(options.dtype)));
  check_vocabulary(loaded.model.config(), loaded.text, file, corpus.vocabulary().tokens(), corpus.path());
  ModelConfig config = loaded.model.config();
  if (eval.train_length > 0) config.attention.train_length = eval.train_length;
  if (!options.methods.empty()) eval.methods = parse_methods(options.methods, config);
  eval.label = label;
  return evaluate(loaded.model, documents, eval, ranks());
}

int run(const Options& options) {
  if (options.quiet) log::set_quiet(true);
  if (options.threads > 0) set_threads(options.threads);
  const bool first = ranks().rank() == 0;
  // Command line first: a wrong word must not wait for a model to load.
  parse_lengths(options.lengths);
  std::optional<Split> wanted;
  if (!options.split.empty()) wanted = parse_split(options.split);
  const std::vector<std::string> labels = labels_of(options);
  const Precision precision(parse_dtype(options.dtype));
  const Corpus corpus(corpus_or_run_corpus(options.data, options.models.front()));
  const EvalOptions eval = eval_options(options, choose_protocol(options, corpus));
  const EvalCorpus documents = read_eval_corpus(corpus, choose_split(corpus, wanted));
  std::vector<Evaluation> evaluations;
  for (std::size_t i = 0; i < options.models.size(); ++i) {
    evaluations.push_back(evaluate_one(options, options.models[i], labels[i], corpus, documents, eval));
  }
  if (!first) return static_cast<int>(ExitCode::kDone);
  if (!options.out.empty()) {
    write_report(evaluations, options.out);
    log::info("written to {}: eval.csv, eval.json, plots", options.out);
  }
  if (options.json) {
    std::cout << to_json(evaluations).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << text_table(evaluations);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eval", "Perplexity and accuracy by length and method, with intervals");
  command->add_option("MODEL", options->models, "Run directories, checkpoints or model.h5 files")->required();
  command->add_option("--data", options->data, "Corpus [the one of the first model's run]");
  command->add_option("--label", options->labels, "Name of a model in tables and plots; once a model")->expected(1)->take_all();
  command->add_option("--split", options->split, "train, valid or test [test, else valid]");
  command->add_option("--lengths", options->lengths,
                      "Lengths, comma-separated [L_train, doubled while documents are long enough]");
  command->add_option("--methods", options->methods, "Methods, comma-separated, or all [the model's own]");
  command->add_option("--protocol", options->protocol, "fixed-target, paper or labels");
  command->add_option("--targets", options->targets, "At most so many targets (paper: a document); 0: all")->check(at_least(0));
  command->add_option("--stride", options->stride, "Distance between targets [L_train]")->check(at_least(1));
  command->add_option("--train-length", options->train_length, "L_train, for models that do not say it")->check(at_least(1));
  command->add_option("--batch-tokens", options->batch_tokens, "Tokens of a forward pass")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Decides targets and resamples")->check(at_least(0))->capture_default_str();
  command
      ->add_option("--skip", options->skip,
                   "Keys that attention leaves out: off, exact (below what sums can notice), or a tolerance")
      ->capture_default_str();
  command
      ->add_option(
          "--sequence-parallel", options->sequence_parallel,
          "Ranks share each sequence: auto (where there are fewer batches than ranks), on or off; no figure depends on it")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command
      ->add_option("--sequence-exchange", options->sequence_exchange,
                   "Keys of shared sequences: gather, or ring (less memory; figures are equal up to rounding, 2e-6)")
      ->check(CLI::IsMember(kSequenceExchangeNames))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "f32, bf16 or f64")
      ->check(CLI::IsMember({"f32", "bf16", "f64"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads [all processors]")->check(at_least(1));
  command->add_option("--out", options->out, "Directory for eval.csv, eval.json and plots");
  command->add_flag("--no-crop", options->no_crop, "Leave out the L_train windows");
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer(kFooter);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
