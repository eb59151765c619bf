// gau info: what a corpus, a checkpoint, a run, a model file or a configuration is.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/corpus.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/log.h"
#include "train/checkpoint.h"
#include "train/cli/commands.h"
#include "train/config.h"
#include "train/config_file.h"
#include "train/exchange.h"
#include "train/file_kind.h"
#include "train/model_io.h"
#include "train/safetensors.h"

namespace gau::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(
Examples:
  gau info corpus.h5
  gau info runs/first --json
  gau info hf/model.safetensors
  gau info config.toml)";

/// "96498432 (96.5 M)"
std::string count_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 1000) return fmt::format("{}", count);
  if (count < 1000000) return fmt::format("{} ({:.1f} k)", count, value / 1e3);
  return fmt::format("{} ({:.1f} M)", count, value / 1e6);
}

Json model_json(const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  return {{"layers", config.layers},
          {"hidden", config.hidden},
          {"intermediate", config.intermediate},
          {"key_size", config.key_size},
          {"vocab_size", config.vocab_size},
          {"type_vocab_size", config.type_vocab_size},
          {"tied", config.tied},
          {"dropout", config.dropout},
          {"attention_dropout", config.attention_dropout},
          {"kind", name_of(attention.kind)},
          {"scale", attention.scale},
          {"learn_scale", attention.learn_scale},
          {"law", attention.law},
          {"position", attention.position},
          {"window", attention.window},
          {"L_train", attention.train_length}};
}

/// Values by table and key, numbers as numbers.
Json config_json(const std::map<std::string, std::string>& values) {
  Json json;
  Config scratch;
  for (const ConfigKey& key : config_keys()) {
    const auto found = values.find(key.full_name());
    if (found == values.end()) continue;
    const bool text = kind_of(key.field(scratch)) == ValueKind::kString;
    json[key.table][key.name] = text ? Json(found->second) : Json::parse(found->second);
  }
  return json;
}

Json corpus_info(const std::string& path) {
  const Corpus corpus(path);
  Json json{{"kind", "corpus"},
            {"documents", corpus.documents()},
            {"tokens", corpus.tokens()},
            {"vocab_size", corpus.vocabulary().size()},
            {"tokenizer", corpus.tokenizer().name()},
            {"labels", corpus.has_labels()}};
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest})
    json["splits"][name_of(split)] = {{"documents", corpus.documents_of(split).size()}, {"tokens", corpus.tokens_of(split)}};
  json["unigram_entropy"] = corpus.unigram_entropy(Split::kTrain);
  json["digest"] = digest_text(corpus.digest());
  return json;
}

Json tensor_shapes(const h5::Reader& file) {
  Json shapes;
  for (const std::string& name : file.list("/parameters")) shapes[name] = Shape(file.info("/parameters/" + name).shape).str();
  return shapes;
}

Json model_info(const std::string& path) {
  const ModelConfig config = read_model_config(path);
  Json json{{"kind", "model"}, {"parameters", config.parameter_count()}};
  json["model"] = model_json(config);
  const Tokenization text = read_tokenization(path);
  json["tokenizer"] = text.vocabulary.empty() ? Json(nullptr) : Json(text.tokenizer);
  const h5::Reader file(path);
  json["digest"] = file.sealed() ? Json(digest_text(file.digest())) : Json(nullptr);
  json["tensors"] = tensor_shapes(file);
  return json;
}

Json checkpoint_info(const std::string& directory) {
  const Manifest manifest = verify_checkpoint(directory);
  const TrainState& state = manifest.state;
  Json json{{"kind", "checkpoint"},
            {"parameters", manifest.parameters},
            {"step", state.step},
            {"cursor", state.cursor},
            {"skipped", state.skipped},
            {"best_step", state.best_step < 0 ? Json(nullptr) : Json(state.best_step)},
            {"best_loss", state.best_step < 0 ? Json(nullptr) : Json(state.best_loss)},
            {"dtype", name_of(manifest.dtype)},
            {"digest", digest_text(manifest.digest)}};
  json["model"] = model_json(read_model_config(directory + "/model.h5"));
  json["config"] = config_json(manifest.config);
  return json;
}

/// The step that a link of a run points to, or null.
Json link_step(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? Json(nullptr) : Json(target.filename().string());
}

Json optimizer_info(const std::string& path) {
  const h5::Reader file(path);
  const std::int64_t begin = file.int_attribute("/", "begin"), end = file.int_attribute("/", "end");
  return {{"kind", "optimizer"},
          {"parameters", end - begin},
          {"begin", begin},
          {"end", end},
          {"digest", digest_text(file.digest())}};
}

/// Tensors of a safetensors file with their types and shapes.
Json safetensors_info(const std::string& path) {
  const safetensors::Reader file(path);
  Json json{{"kind", "safetensors"}, {"bytes", file.bytes()}};
  std::int64_t elements = 0;
  Json tensors = Json::object();
  for (const safetensors::Entry& entry : file.entries()) {
    elements += entry.elements();
    tensors[entry.name] = fmt::format("{} [{}]", entry.dtype, fmt::join(entry.shape, ", "));
  }
  json["elements"] = elements;
  for (const auto& [key, value] : file.metadata()) json["metadata"][key] = value;
  json["tensors"] = std::move(tensors);
  return json;
}

Json exchange_info(const std::string& directory) {
  const ExchangeImport read = import_model(directory);
  const ModelConfig& config = read.loaded.model.config();
  Json json{{"kind", "exchange"}, {"parameters", config.parameter_count()}, {"dtypes", read.dtypes}};
  json["model"] = model_json(config);
  json["tokenizer"] = read.loaded.text.vocabulary.empty() ? Json(nullptr) : Json(read.loaded.text.tokenizer);
  json["notes"] = read.notes;
  json["tensors"] = safetensors_info(directory + "/model.safetensors")["tensors"];
  return json;
}

Json run_info(const std::string& directory) {
  const fs::path checkpoints = fs::path(directory) / "checkpoints";
  const fs::path newest = checkpoints / "latest";
  check(fs::exists(newest), ExitCode::kData, "{}: the run has no checkpoint yet", directory);
  Json json = checkpoint_info(newest.string());
  json["kind"] = "run";
  json["latest"] = link_step(newest);
  json["best"] = link_step(checkpoints / "best");
  return json;
}

Json config_info(const std::string& path) {
  Config config = load_config(path);
  if (config.model.vocab_size == 0 && !config.data.corpus.empty())
    config.model.vocab_size = Corpus(config.data.corpus).vocabulary().size();
  Json json{{"kind", "config"}};
  // Without a vocabulary the size of the embedding is not known.
  json["parameters"] = config.model.vocab_size == 0 ? Json(nullptr) : Json(config.model.parameter_count());
  json["config"] = config_json(config_values(config, false));
  return json;
}

Json info(const std::string& path) {
  switch (kind_of(path)) {
    case FileKind::kCorpus:
      return corpus_info(path);
    case FileKind::kModel:
      return model_info(path);
    case FileKind::kModelFolder:
      return model_info(path + "/model.h5");
    case FileKind::kOptimizer:
      return optimizer_info(path);
    case FileKind::kSafetensors:
      return safetensors_info(path);
    case FileKind::kRun:
      return run_info(path);
    case FileKind::kCheckpoint:
      return checkpoint_info(path);
    case FileKind::kExchange:
      return exchange_info(path);
    case FileKind::kConfig:
      return config_info(path);
    case FileKind::kHdf5:
      break;
  }
  fail(ExitCode::kData, "{}: is an HDF5 file, but neither a corpus nor a model", path);
}

void print(const Json& json, const std::string& indent) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      std::cout << indent << name << "\n";
      print(value, indent + "  ");
      continue;
    }
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (name == "parameters" && value.is_number()) text = count_text(value.get<std::int64_t>());
    if (value.is_null()) text = "not known";
    std::cout << indent << fmt::format("{:<{}} {}", name, 20 - std::min<std::size_t>(indent.size(), 18), text) << "\n";
  }
}

struct InfoOptions {
  std::string path;
  bool json = false;
  bool quiet = false;
};

int run_info_command(const InfoOptions& options) {
  log::set_quiet(options.quiet);
  const Json json = info(options.path);
  if (options.json)
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  else
    print(json, "");
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand("info", "Says what a corpus, checkpoint, run, model or configuration is");
  command
      ->add_option("FILE", options->path,
                   "corpus.h5, model.h5, CONFIG.toml, a safetensors file, a checkpoint, a run or an exported directory")
      ->required();
  command->add_flag("--json", options->json, "one JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "no messages besides warnings");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return run_info_command(*options); }; });
}

}  // namespace gau::cli
