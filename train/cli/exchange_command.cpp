// gau export and gau import: models to and from the Hugging Face layout of GAU-α.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/log.h"
#include "train/cli/commands.h"
#include "train/exchange.h"
#include "train/exchange_config.h"

namespace gau::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kExportFooter = R"(
Writes DIR/model.safetensors, DIR/config.json and DIR/vocab.txt as GAUAlphaForMaskedLM saves them. bf16 and f16 round to
nearest; how many values changed is said, and a value that f16 cannot hold is refused. f32 is exact.

Examples:
  gau export runs/first -o hf
  gau export runs/first/checkpoints/step-1000 -o hf-bf16 --dtype bf16 --overwrite)";

constexpr const char* kImportFooter = R"(
Reads DIR/model.safetensors, DIR/config.json and DIR/vocab.txt. MODEL is a file when it ends in .h5, else a directory with a
model.h5 in it; every command takes either. Element types of 16 bits are widened exactly: exporting with the same --dtype gives
the same bytes. A pytorch_model.bin becomes a model.safetensors by scripts/torch_to_safetensors.py.

Examples:
  gau import hf -o model.h5
  gau import chinese_GAU-alpha-char_L-24_H-768 -o gau-alpha)";

void print(const Json& json) { std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n'; }

struct ExportOptions {
  std::string model;
  std::string out;
  std::string dtype = "f32";
  bool overwrite = false;
  bool json = false;
  bool quiet = false;
};

/// float64 has more digits than any type of an export.
void warn_of_double(const std::string& file) {
  const h5::Reader reader(file);
  const std::vector<std::string> names = reader.list("/parameters");
  if (!names.empty() && reader.info("/parameters/" + names.front()).element_bytes == 8)
    log::warn("{}: its parameters are float64; they are rounded to float32", file);
}

int run_export(const ExportOptions& options) {
  log::set_quiet(options.quiet);
  const safetensors::Type type = safetensors::parse_type(options.dtype);
  const std::string file = resolve_model_path(options.model);
  const LoadedModel loaded = load_model(file);
  warn_of_double(file);
  const std::string unknown = unknown_to_others(loaded.model.config());
  if (!unknown.empty())
    log::warn("readers of the published GAU-α do not know: {}; only gau computes what this model does", unknown);
  if (loaded.text.vocabulary.empty()) log::warn("{}: has no vocabulary, so {} gets no vocab.txt", file, options.out);
  const ExchangeExport done = export_model(options.out, loaded, type, options.overwrite);
  if (done.rounding.changed > 0)
    log::info("{}: rounding changed {} of {} values, {} of them to 0", options.dtype, done.rounding.changed,
              done.rounding.elements, done.rounding.zeroed);
  log::info("{}: {} tensors, {} parameters, {}", options.out, done.tensors, loaded.model.parameters().size(), options.dtype);
  if (options.json)
    print({{"output", options.out},
           {"dtype", options.dtype},
           {"tensors", done.tensors},
           {"parameters", loaded.model.parameters().size()},
           {"rounded", done.rounding.changed},
           {"zeroed", done.rounding.zeroed}});
  return static_cast<int>(ExitCode::kDone);
}

struct ImportOptions {
  std::string source;
  std::string out;
  ExchangeOptions exchange;
  bool overwrite = false;
  bool json = false;
  bool quiet = false;
};

/// Saves to a file that ends in .h5, else to model.h5 in a directory; returns the digest.
std::uint64_t save(const ImportOptions& options, const LoadedModel& loaded) {
  if (options.out.ends_with(".h5")) {
    check(options.overwrite || !fs::exists(options.out), ExitCode::kUsage,
          "{}: is there already; give --overwrite to replace it, or another output", options.out);
    return save_model(options.out, loaded.model, loaded.text);
  }
  check_output_directory(options.out, {"model.h5"}, options.overwrite);
  TemporaryDirectory output(options.out);
  const std::uint64_t digest = save_model(output.name() + "/model.h5", loaded.model, loaded.text);
  output.publish(options.overwrite);
  return digest;
}

int run_import(const ImportOptions& options) {
  log::set_quiet(options.quiet);
  const ExchangeImport read = import_model(options.source, options.exchange);
  for (const std::string& note : read.notes) log::info("{}: {}", options.source, note);
  for (const std::string& name : read.ignored) log::warn("{}: leaves out tensor {}", options.source, name);
  const std::string dtypes = fmt::format("{}", fmt::join(read.dtypes, ", "));
  const std::uint64_t digest = save(options, read.loaded);
  const std::int64_t parameters = read.loaded.model.parameters().size();
  log::info("{}: {} parameters of {} from {}", options.out, parameters, dtypes, options.source);
  if (options.json)
    print({{"output", options.out},
           {"dtypes", read.dtypes},
           {"parameters", parameters},
           {"ignored", read.ignored},
           {"digest", digest_text(digest)}});
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write a model in the Hugging Face layout of GAU-alpha");
  command->add_option("MODEL", options->model, "Run directory, checkpoint or model.h5")->required();
  command->add_option("-o,--output", options->out, "Directory to make")->required();
  command->add_option("--dtype", options->dtype, "Element type: f32, bf16 or f16")->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Replace a directory that holds an earlier export and nothing else");
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No messages besides warnings");
  command->footer(kExportFooter);
  command->callback([options, &action] { action = [options] { return run_export(*options); }; });
}

void add_import(CLI::App& app, Action& action) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command = app.add_subcommand("import", "Read a model in the Hugging Face layout of GAU-alpha");
  command->add_option("DIR", options->source, "Directory with model.safetensors, config.json and vocab.txt")->required();
  command->add_option("-o,--output", options->out, "MODEL to make: FILE.h5, or a directory")->required();
  command->add_option("--tokenizer", options->exchange.tokenizer, "char, byte or name, instead of what config.json says");
  SpecialNames& specials = options->exchange.specials;
  for (const auto& [name, text] : {std::pair{"--pad-token", &specials.pad}, std::pair{"--unk-token", &specials.unk},
                                   std::pair{"--cls-token", &specials.cls}, std::pair{"--sep-token", &specials.sep},
                                   std::pair{"--mask-token", &specials.mask}})
    command->add_option(name, *text, "Name of that token in vocab.txt, instead of what config.json says");
  command->add_flag("--ignore-extra", options->exchange.ignore_extra,
                    "Leave out tensors that the model has no place for, naming them");
  command->add_flag("--overwrite", options->overwrite, "Replace the output of an earlier import");
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No messages besides warnings");
  command->footer(kImportFooter);
  command->callback([options, &action] { action = [options] { return run_import(*options); }; });
}

}  // namespace gau::cli
