// What the tensors say comes first (sizes), then config.json, then the model that both describe is filled name by name.
#include "train/exchange.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "data/vocabulary.h"
#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/read_file.h"
#include "layers/parameter_names.h"
#include "train/exchange_config.h"
#include "train/strict_json.h"

namespace gau {
namespace {

using namespace parameter_names;
namespace fs = std::filesystem;
using safetensors::Entry;
using safetensors::Reader;

constexpr const char* kTensors = "model.safetensors";
constexpr const char* kConfig = "config.json";
constexpr const char* kVocabulary = "vocab.txt";
constexpr std::uintmax_t kMostConfigBytes = 16 << 20;

/// The first names of a list, and how many there are.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "" : ", ") + shown(names[i]);
  return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

/// Where the parts of a source are: a directory, or the tensors themselves.
fs::path tensors_path(const std::string& source) {
  std::error_code error;
  check(fs::exists(source, error), ExitCode::kIo, "{}: there is no such file or directory", source);
  if (!fs::is_directory(source, error)) return source;
  const fs::path directory(source), tensors = directory / kTensors;
  if (fs::exists(tensors, error)) return tensors;
  check(!fs::exists(directory / "model.safetensors.index.json", error), ExitCode::kData,
        "{}: its tensors are spread over several files; save them as one {}", source, kTensors);
  check(!fs::exists(directory / "pytorch_model.bin", error), ExitCode::kData,
        "{}: holds pytorch_model.bin, not {}; scripts/torch_to_safetensors.py makes one of the other", source, kTensors);
  fail(ExitCode::kData, "{}: holds no {}", source, kTensors);
}

std::string read_text(const fs::path& path) {
  std::error_code error;
  check(fs::exists(path, error), ExitCode::kData, "{}: is missing", path.string());
  return read_file(path.string(), "a configuration", kMostConfigBytes);
}

/// The shape [rows, columns] of a tensor that there must be.
const std::vector<std::int64_t>& matrix(const Reader& file, const std::string& name) {
  const Entry* entry = file.find(name);
  check(entry != nullptr, ExitCode::kData, "{}: tensor {} is missing", file.path(), name);
  check(entry->shape.size() == 2, ExitCode::kData, "{}: tensor {} has {} dimensions, must have 2", file.path(), name,
        entry->shape.size());
  return entry->shape;
}

/// One more than the highest number of a layer, whether or not all of its tensors are there.
std::int64_t layers_of(const Reader& file) {
  std::int64_t layers = 0;
  for (const Entry& entry : file.entries()) {
    if (!entry.name.starts_with(kLayer)) continue;
    const char* begin = entry.name.data() + std::strlen(kLayer);
    std::int64_t layer = -1;
    const auto [end, error] = std::from_chars(begin, entry.name.data() + entry.name.size(), layer);
    if (error == std::errc() && end != begin && *end == '.' && layer >= 0 && layer < 4096) layers = std::max(layers, layer + 1);
  }
  return layers;
}

ModelConfig sizes_of(const Reader& file) {
  ModelConfig config;
  const auto& word = matrix(file, kWord);
  config.vocab_size = word[0];
  config.hidden = word[1];
  config.type_vocab_size = matrix(file, kType)[0];
  const std::string first = std::string(kLayer) + "0.gau.";
  config.intermediate = matrix(file, first + "o_dense.weight")[1];
  config.key_size = matrix(file, first + "i_dense.weight")[0];
  check(config.intermediate <= config.key_size / 2, ExitCode::kData,
        "{}: tensor {}i_dense.weight has {} rows, which must be more than twice the {} columns of o_dense", file.path(), first,
        config.key_size, config.intermediate);
  config.key_size -= 2 * config.intermediate;
  config.layers = layers_of(file);
  // A name alone must not make a model larger than its file: every layer has its matrices before memory is asked for.
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (const char* part : {"i_dense.weight", "o_dense.weight"}) {
      const auto& shape = matrix(file, fmt::format("{}{}.gau.{}", kLayer, layer, part));
      check(shape == matrix(file, first + part), ExitCode::kData, "{}: tensor {}{}.gau.{} is [{}], unlike that of layer 0",
            file.path(), kLayer, layer, part, fmt::join(shape, ", "));
    }
  return config;
}

std::vector<float> read_finite(const Reader& file, const Entry& entry) {
  std::vector<float> values = file.read(entry);
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  check(bad == values.end(), ExitCode::kData, "{}: tensor {}: element {} is not finite", file.path(), shown(entry.name),
        bad - values.begin());
  return values;
}

/// A head that config.json ties must be the embedding, where it is there at all.
void check_tied_head(const Reader& file) {
  const Entry* decoder = file.find(kDecoder);
  if (decoder == nullptr) return;
  const Entry& word = *file.find(kWord);
  const std::vector<float> head = read_finite(file, *decoder), table = read_finite(file, word);
  check(decoder->shape == word.shape && std::memcmp(head.data(), table.data(), head.size() * sizeof(float)) == 0,
        ExitCode::kData,
        "{}: tensor {} differs from {}, though config.json ties them; set \"tie_word_embeddings\": false there to keep both",
        file.path(), kDecoder, kWord);
}

void check_names(const Reader& file, const Model& model, const ExchangeOptions& options, std::vector<std::string>& ignored) {
  std::vector<std::string> missing;
  for (const Parameter& parameter : model.parameters().list())
    if (file.find(parameter.name) == nullptr) missing.push_back(parameter.name);
  check(missing.empty(), ExitCode::kData, "{}: tensors are missing: {}", file.path(), some_of(missing));
  for (const Entry& entry : file.entries()) {
    const bool tied_head = model.config().tied && entry.name == kDecoder;
    if (!tied_head && !model.parameters().contains(entry.name)) ignored.push_back(entry.name);
  }
  check(ignored.empty() || options.ignore_extra, ExitCode::kData,
        "{}: tensors that the model has no place for: {}; --ignore-extra leaves them out", file.path(), some_of(ignored));
}

void read_parameters(const Reader& file, Model& model) {
  for (const Parameter& parameter : model.parameters().list()) {
    const Entry& entry = *file.find(parameter.name);
    std::vector<std::int64_t> wanted;
    for (int axis = 0; axis < parameter.shape.rank(); ++axis) wanted.push_back(parameter.shape[axis]);
    check(entry.shape == wanted, ExitCode::kData, "{}: tensor {} is [{}], must be {}", file.path(), parameter.name,
          fmt::join(entry.shape, ", "), parameter.shape.str());
    const std::vector<float> values = read_finite(file, entry);
    std::copy(values.begin(), values.end(),
              model.parameters().values().segment(parameter.offset, parameter.shape).data<float>());
  }
}

/// Stands in vocab.txt for a token that no line can hold.
std::string stand_in(std::int64_t id) { return fmt::format("[unused{}]", id); }

/// Tokens of vocab.txt, those that no line can hold from config.json.
std::vector<std::string> read_vocabulary(const fs::path& path, const ExchangeConfig& config) {
  std::error_code error;
  check(fs::is_regular_file(path, error), ExitCode::kData, "{}: is no regular file", path.string());
  const Vocabulary lines = Vocabulary::from_file(path.string(), config.text.specials);
  check(lines.size() == config.model.vocab_size, ExitCode::kData, "{}: has {} lines for a model with {} tokens", path.string(),
        lines.size(), config.model.vocab_size);
  check(lines.special().pad == config.model.pad_id, ExitCode::kData,
        "{}: {} is on row {}, but pad_token_id of config.json is {}", path.string(), config.text.specials.pad,
        lines.special().pad, config.model.pad_id);
  std::vector<std::string> tokens = lines.tokens();
  for (const auto& [id, token] : config.rows) {
    std::string& line = tokens[static_cast<std::size_t>(id)];
    check(line == stand_in(id), ExitCode::kData,
          "{}: row {} is {}, but gau.rows of config.json has a token for it, so {} is expected", path.string(), id, shown(line),
          stand_in(id));
    line = token;
  }
  return tokens;
}

void check_tokenizer(const Tokenization& text, const std::string& path, const ExchangeOptions& options) {
  try {
    text.make(path);
  } catch (const Error& error) {
    fail(options.tokenizer.empty() ? ExitCode::kData : ExitCode::kUsage, "{}: tokenizer {}: {}", path, shown(text.tokenizer),
         error.what());
  }
}

void read_text_settings(const fs::path& directory, const ExchangeOptions& options, ExchangeConfig& config) {
  if (!options.tokenizer.empty()) config.text.tokenizer = options.tokenizer;
  for (const auto member :
       {&SpecialNames::pad, &SpecialNames::unk, &SpecialNames::cls, &SpecialNames::sep, &SpecialNames::mask})
    if (!(options.specials.*member).empty()) config.text.specials.*member = options.specials.*member;
  const fs::path path = directory / kVocabulary;
  if (!fs::exists(fs::symlink_status(path))) {
    config.notes.push_back(fmt::format("no {}: the model takes ids, but no text", kVocabulary));
    config.text = {};
    return;
  }
  config.text.vocabulary = read_vocabulary(path, config);
  if (config.text.tokenizer == "wordpiece" || config.text.tokenizer == "sentencepiece")
    config.notes.push_back(
        fmt::format("the tokenizer {} is not built in: the model takes ids, but no text", config.text.tokenizer));
  else
    check_tokenizer(config.text, path.string(), options);
}

std::string vocabulary_text(const std::vector<std::string>& tokens) {
  const auto beyond = rows_beyond_lines(tokens);
  std::string text;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    text += (beyond.contains(static_cast<std::int64_t>(id)) ? stand_in(static_cast<std::int64_t>(id)) : tokens[id]) + "\n";
  return text;
}

std::vector<safetensors::Source> sources_of(const Model& model) {
  std::vector<safetensors::Source> sources;
  const auto add = [&](const std::string& name, const Parameter& parameter) {
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < parameter.shape.rank(); ++axis) shape.push_back(parameter.shape[axis]);
    const Tensor values = model.parameters().values().segment(parameter.offset, parameter.shape);
    sources.push_back({name, shape, [values] { return values.span<float>(); }});
  };
  for (const Parameter& parameter : model.parameters().list()) add(parameter.name, parameter);
  if (model.config().tied) add(kDecoder, model.parameters().find(kWord));
  return sources;
}

}  // namespace

void check_output_directory(const std::string& path, const std::vector<std::string>& names, bool overwrite) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    check(overwrite, ExitCode::kUsage, "{}: is there already; give --overwrite to replace it, or another output", path);
    check(std::find(names.begin(), names.end(), name) != names.end(), ExitCode::kUsage,
          "{}: holds {}, which --overwrite would remove; name another output", path, name);
  }
  check(!error, ExitCode::kIo, "{}: cannot be read: {}", path, error.message());
}

bool is_exchange_directory(const std::string& path) {
  std::error_code error;
  const fs::path directory(path);
  return fs::is_directory(directory, error) && fs::exists(directory / kTensors, error) &&
         !fs::exists(directory / "checkpoints", error) && !fs::exists(directory / "manifest.json", error);
}

ExchangeExport export_model(const std::string& directory, const LoadedModel& loaded, safetensors::Type type, bool overwrite) {
  check_output_directory(directory, {kTensors, kConfig, kVocabulary}, overwrite);
  TemporaryDirectory output(directory);
  const std::vector<safetensors::Source> sources = sources_of(loaded.model);
  ExchangeExport result{static_cast<std::int64_t>(sources.size()), {}};
  result.rounding = safetensors::write(output.name() + "/" + kTensors, sources, type);
  write_file(output.name() + "/" + kConfig, exchange_config_text(loaded.model.config(), loaded.text, type));
  if (!loaded.text.vocabulary.empty()) write_file(output.name() + "/" + kVocabulary, vocabulary_text(loaded.text.vocabulary));
  output.publish(overwrite);
  return result;
}

ExchangeImport import_model(const std::string& source, const ExchangeOptions& options) {
  const fs::path tensors = tensors_path(source);
  const Reader file(tensors.string());
  const fs::path directory = tensors.parent_path();
  const fs::path path = directory / kConfig;
  ExchangeConfig config = parse_exchange_config(read_text(path), sizes_of(file), path.string());
  config.model.tied = config.ties;
  if (config.ties) check_tied_head(file);
  read_text_settings(directory, options, config);
  std::vector<std::string> ignored;
  std::set<std::string> dtypes;
  for (const Entry& entry : file.entries()) dtypes.insert(entry.dtype);
  ExchangeImport result{{Model(config.model), config.text}, {dtypes.begin(), dtypes.end()}, {}, config.notes};
  check_names(file, result.loaded.model, options, result.ignored);
  read_parameters(file, result.loaded.model);
  return result;
}

}  // namespace gau
