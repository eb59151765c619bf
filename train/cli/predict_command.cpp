// gau predict: logits, hidden states and attention of given ids or text, as an HDF5 file.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/cli/commands.h"
#include "train/cli/validators.h"
#include "train/model_io.h"
#include "train/precision.h"
#include "train/predict.h"

namespace gau::cli {
namespace {

struct Options {
  std::string model;
  std::string ids;
  std::string text;
  std::string method;
  std::string dtype = "f32";
  std::string out;
  int threads = 0;
  bool no_types = false;
  bool mask_ones = false;
  bool json = false;
  bool quiet = false;
  PredictOptions predict;
};

constexpr const char* kFooter = R"(
--ids reads input_ids, attention_mask and type_ids (int, rows x length) from the root or from /inputs of an HDF5 file.
The output holds logits (rows x length x vocabulary), hidden ((layers + 1) x rows x length x hidden) and
attention (layers x rows x length x length), float32, or float64 with --dtype f64.

Example:
  gau predict runs/first --text lines.txt --methods rope+infoscale --hidden -o out.h5)";

Method one_method(const std::string& list, const ModelConfig& config) {
  if (list.empty()) return Method{};
  const std::vector<Method> methods = parse_methods(list, config);
  check(methods.size() == 1, ExitCode::kUsage, "--methods {}: predict takes one method a call, this names {}", list,
        methods.size());
  return methods.front();
}

PredictInputs inputs_of(const Options& options, const LoadedModel& loaded, const std::string& file) {
  PredictInputs inputs =
      options.ids.empty() ? predict_inputs_of_text(options.text, *loaded.text.make(file)) : read_predict_inputs(options.ids);
  if (options.no_types) inputs.types.clear();
  if (options.mask_ones) inputs.mask.clear();
  check_predict_inputs(inputs, loaded.model.config(), options.ids.empty() ? options.text : options.ids);
  return inputs;
}

int run(const Options& options) {
  if (options.quiet) log::set_quiet(true);
  if (options.threads > 0) set_threads(options.threads);
  check(options.ids.empty() != options.text.empty(), ExitCode::kUsage, "predict: give either --ids FILE or --text FILE");
  const DType dtype = parse_dtype(options.dtype);
  const Precision precision(dtype);
  const std::string file = resolve_model_path(options.model);
  const LoadedModel loaded = load_model(file, storage_type(dtype));
  const Method method = one_method(options.method, loaded.model.config());
  const PredictInputs inputs = inputs_of(options, loaded, file);
  const std::uint64_t digest = predict(loaded.model, method, inputs, options.predict, options.out);
  log::info("{}: {} rows of {} tokens", options.out, inputs.rows, inputs.length);
  if (options.json) {
    const nlohmann::ordered_json out{{"output", options.out},
                                     {"method", resolve(method, loaded.model.config()).name},
                                     {"dtype", options.dtype},
                                     {"rows", inputs.rows},
                                     {"length", inputs.length},
                                     {"vocabulary", loaded.model.config().vocab_size},
                                     {"digest", fmt::format("{:016x}", digest)}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("predict", "Run the model and write logits, hidden states and attention to a file");
  command->add_option("MODEL", options->model, "Run directory, checkpoint or model.h5")->required();
  command->add_option("--ids", options->ids, "HDF5 file with input_ids");
  command->add_option("--text", options->text, "Text, a sequence a line; -: standard input");
  command->add_option("--methods", options->method, "One method [the model's own]");
  command->add_flag("--hidden", options->predict.hidden, "Also write hidden states");
  command->add_flag("--attention", options->predict.attention, "Also write attention weights");
  command->add_flag("--no-types", options->no_types, "Ignore type_ids");
  command->add_flag("--mask-ones", options->mask_ones, "Ignore attention_mask: every position is a token");
  command->add_option("--dtype", options->dtype, "f32, bf16 or f64")->capture_default_str();
  command->add_option("--batch-tokens", options->predict.batch_tokens, "Tokens of a forward pass")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads [all processors]")->check(at_least(1));
  command->add_option("-o,--output", options->out, "Output file")->required();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer(kFooter);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace gau::cli
