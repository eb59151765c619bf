// Model files through framework/hdf5_file.h. One list of attributes serves writing and reading.
#include "train/model_io.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "layers/parameter_names.h"

namespace gau {
namespace {

using namespace parameter_names;
constexpr const char* kRoot = "/";
constexpr const char* kGroup = "/parameters";
constexpr const char* kVocabulary = "/vocab";

std::string dataset_of(const std::string& name) { return std::string(kGroup) + "/" + name; }

/// Calls visit(attribute name, field) for every field of the configuration: one list for reading and writing. Booleans are
/// stored as 0 and 1, enumerations by name.
template <class Config, class Visit>
void visit_attributes(Config& config, const Visit& visit) {
  visit("layers", config.layers);
  visit("hidden", config.hidden);
  visit("intermediate", config.intermediate);
  visit("key_size", config.key_size);
  visit("vocab_size", config.vocab_size);
  visit("type_vocab_size", config.type_vocab_size);
  visit("tied", config.tied);
  visit("dropout", config.dropout);
  visit("attention_dropout", config.attention_dropout);
  visit("norm_eps", config.norm_eps);
  visit("pad_id", config.pad_id);
  visit("kind", config.attention.kind);
  visit("scale", config.attention.scale);
  visit("learn_scale", config.attention.learn_scale);
  visit("scale_warmup", config.attention.scale_warmup);
  visit("law", config.attention.law);
  visit("position", config.attention.position);
  visit("window", config.attention.window);
  visit("init_gamma", config.attention.init_gamma);
  visit("mask_diagonal", config.attention.mask_diagonal);
  visit("L_train", config.attention.train_length);
}

template <class Names, class Visit>
void visit_specials(Names& names, const Visit& visit) {
  visit("pad", names.pad);
  visit("unk", names.unk);
  visit("cls", names.cls);
  visit("sep", names.sep);
  visit("mask", names.mask);
}

class AttributeWriter {
 public:
  explicit AttributeWriter(h5::Writer& file) : file_(file) {}
  void operator()(const char* name, std::int64_t value) const { file_.attribute(kRoot, name, value); }
  void operator()(const char* name, bool value) const { file_.attribute(kRoot, name, static_cast<std::int64_t>(value)); }
  void operator()(const char* name, double value) const { file_.attribute(kRoot, name, value); }
  void operator()(const char* name, const std::string& value) const { file_.attribute(kRoot, name, value); }
  void operator()(const char* name, AttentionKind value) const { (*this)(name, std::string(name_of(value))); }
  void operator()(const char* name, InitGamma value) const { (*this)(name, std::string(name_of(value))); }

 private:
  h5::Writer& file_;
};

class AttributeReader {
 public:
  explicit AttributeReader(const h5::Reader& file) : file_(file) {}
  void operator()(const char* name, std::int64_t& value) const {
    if (has(name)) value = file_.int_attribute(kRoot, name);
  }
  void operator()(const char* name, bool& value) const {
    if (has(name)) value = file_.int_attribute(kRoot, name) != 0;
  }
  void operator()(const char* name, double& value) const {
    if (has(name)) value = file_.real_attribute(kRoot, name);
  }
  void operator()(const char* name, std::string& value) const {
    if (has(name)) value = file_.string_attribute(kRoot, name);
  }
  void operator()(const char* name, AttentionKind& value) const {
    if (has(name)) value = parse_attention_kind(file_.string_attribute(kRoot, name));
  }
  void operator()(const char* name, InitGamma& value) const {
    if (has(name)) value = parse_init_gamma(file_.string_attribute(kRoot, name));
  }

 private:
  bool has(const char* name) const { return file_.has_attribute(kRoot, name); }
  const h5::Reader& file_;
};

std::vector<std::int64_t> matrix_shape(const h5::Reader& file, const std::string& name) {
  check(file.has(dataset_of(name)), ExitCode::kData, "{}: tensor {} is missing", file.path(), name);
  const auto shape = file.info(dataset_of(name)).shape;
  check(shape.size() == 2, ExitCode::kData, "{}: tensor {} has {} dimensions, must have 2", file.path(), name, shape.size());
  return shape;
}

/// The sizes that the tensors themselves have.
ModelConfig sizes_of_tensors(const h5::Reader& file) {
  check(file.has(kGroup), ExitCode::kData, "{}: has no group {}: this is no model file", file.path(), kGroup);
  ModelConfig config;
  const auto word = matrix_shape(file, kWord);
  config.vocab_size = word[0];
  config.hidden = word[1];
  config.type_vocab_size = matrix_shape(file, kType)[0];
  config.tied = !file.has(dataset_of(kDecoder));
  const std::string first = std::string(kLayer) + "0.gau.";
  config.intermediate = matrix_shape(file, first + "o_dense.weight")[1];
  config.key_size = matrix_shape(file, first + "i_dense.weight")[0] - 2 * config.intermediate;
  config.layers = 0;
  while (file.has(dataset_of(fmt::format("{}{}.gau.i_dense.weight", kLayer, config.layers)))) ++config.layers;
  return config;
}

void check_agreement(const h5::Reader& file, const char* name, std::int64_t attribute, std::int64_t tensors) {
  check(attribute == tensors, ExitCode::kData, "{}: attribute {} = {}, but the tensors have {}", file.path(), name, attribute,
        tensors);
}

void read_calibration(const h5::Reader& file, ModelConfig& config) {
  if (!file.has("/calibration/lengths")) return;
  const auto lengths = file.read<std::int64_t>("/calibration/lengths");
  const auto factors = file.read<double>("/calibration/factors");
  const auto targets = file.has("/calibration/targets") ? file.read<double>("/calibration/targets") : std::vector<double>();
  const auto layers = static_cast<std::size_t>(config.layers);
  check(targets.empty() || targets.size() == factors.size(), ExitCode::kData,
        "{}: /calibration/targets has {} values for {} factors", file.path(), targets.size(), factors.size());
  check(factors.size() == lengths.size() * layers, ExitCode::kData, "{}: /calibration/factors has {} values for {} lengths",
        file.path(), factors.size(), lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto of_length = [&](const std::vector<double>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * layers);
      return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(layers));
    };
    config.attention.calibration.push_back(
        {lengths[i], of_length(factors), targets.empty() ? std::vector<double>() : of_length(targets)});
  }
}

void write_calibration(h5::Writer& file, const ModelConfig& config) {
  if (config.attention.calibration.empty()) return;
  std::vector<std::int64_t> lengths;
  std::vector<double> factors, targets;
  for (const Calibration& entry : config.attention.calibration) {
    lengths.push_back(entry.length);
    factors.insert(factors.end(), entry.factors.begin(), entry.factors.end());
    targets.insert(targets.end(), entry.targets.begin(), entry.targets.end());
  }
  const auto count = static_cast<std::int64_t>(lengths.size());
  file.write<std::int64_t>("/calibration/lengths", lengths, {count});
  file.write<double>("/calibration/factors", factors, {count, config.layers});
  if (targets.size() == factors.size()) file.write<double>("/calibration/targets", targets, {count, config.layers});
}

ModelConfig config_of(const h5::Reader& file) {
  const ModelConfig tensors = sizes_of_tensors(file);
  ModelConfig config = tensors;
  try {
    visit_attributes(config, AttributeReader(file));
    config.validate();
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", file.path(), error.what());
  }
  check_agreement(file, "layers", config.layers, tensors.layers);
  check_agreement(file, "hidden", config.hidden, tensors.hidden);
  check_agreement(file, "intermediate", config.intermediate, tensors.intermediate);
  check_agreement(file, "key_size", config.key_size, tensors.key_size);
  check_agreement(file, "vocab_size", config.vocab_size, tensors.vocab_size);
  check_agreement(file, "type_vocab_size", config.type_vocab_size, tensors.type_vocab_size);
  read_calibration(file, config);
  return config;
}

Tokenization tokenization_of(const h5::Reader& file, std::int64_t vocab_size) {
  Tokenization text;
  if (!file.has(kVocabulary)) return text;
  text.vocabulary = file.read_strings(kVocabulary);
  check(static_cast<std::int64_t>(text.vocabulary.size()) == vocab_size, ExitCode::kData,
        "{}: {} has {} tokens for a model with vocab_size = {}", file.path(), kVocabulary, text.vocabulary.size(), vocab_size);
  if (file.has_attribute(kVocabulary, "tokenizer")) text.tokenizer = file.string_attribute(kVocabulary, "tokenizer");
  visit_specials(text.specials, [&](const char* name, std::string& value) {
    if (file.has_attribute(kVocabulary, name)) value = file.string_attribute(kVocabulary, name);
  });
  return text;
}

void check_names(const h5::Reader& file, const FlatParameters& parameters) {
  for (const Parameter& parameter : parameters.list())
    check(file.has(dataset_of(parameter.name)), ExitCode::kData, "{}: tensor {} is missing", file.path(), parameter.name);
  for (const std::string& name : file.list(kGroup))
    check(parameters.contains(name), ExitCode::kData, "{}: tensor {} is no part of a model with these attributes", file.path(),
          name);
}

template <class T>
void read_values(const h5::Reader& file, const Parameter& parameter, Tensor values) {
  const auto shape = file.info(dataset_of(parameter.name)).shape;
  check(Shape(std::span(shape)) == parameter.shape, ExitCode::kData, "{}: tensor {} is {}, must be {}", file.path(),
        parameter.name, Shape(std::span(shape)).str(), parameter.shape.str());
  const std::vector<T> read = file.read<T>(dataset_of(parameter.name));
  const auto bad = std::find_if(read.begin(), read.end(), [](T value) { return !std::isfinite(value); });
  check(bad == read.end(), ExitCode::kData, "{}: tensor {}: element {} is not finite", file.path(), parameter.name,
        bad - read.begin());
  std::copy(read.begin(), read.end(), values.segment(parameter.offset, parameter.shape).data<T>());
}

void read_parameters(const h5::Reader& file, Model& model) {
  check_names(file, model.parameters());
  for (const Parameter& parameter : model.parameters().list()) {
    if (model.dtype() == DType::kF64)
      read_values<double>(file, parameter, model.parameters().values());
    else
      read_values<float>(file, parameter, model.parameters().values());
  }
}

template <class T>
void write_values(h5::Writer& file, const Parameter& parameter, const Tensor& values) {
  std::vector<std::int64_t> shape;
  for (int axis = 0; axis < parameter.shape.rank(); ++axis) shape.push_back(parameter.shape[axis]);
  const Tensor segment = values.segment(parameter.offset, parameter.shape);
  file.write<T>(dataset_of(parameter.name), segment.span<T>(), shape);
}

}  // namespace

Tokenization Tokenization::of(const Tokenizer& tokenizer) {
  const auto [pad, unk, cls, sep, mask] = tokenizer.vocabulary().special_texts();
  return {tokenizer.name(), tokenizer.vocabulary().tokens(), {pad, unk, cls, sep, mask}};
}

std::unique_ptr<Tokenizer> Tokenization::make(const std::string& where) const {
  check(!vocabulary.empty(), ExitCode::kData, "{}: has no vocabulary ({}), so text cannot be read with it", where, kVocabulary);
  check(!tokenizer.empty(), ExitCode::kData, "{}: {} has no attribute \"tokenizer\", so text cannot be read with it", where,
        kVocabulary);
  return make_tokenizer(tokenizer, Vocabulary(vocabulary, specials, where));
}

std::uint64_t save_model(const std::string& path, const Model& model, const Tokenization& text) {
  return save_model(path, model, model.parameters().values(), text);
}

std::uint64_t save_model(const std::string& path, const Model& model, const Tensor& values, const Tokenization& text) {
  h5::Writer file(path);
  for (const Parameter& parameter : model.parameters().list()) {
    if (model.dtype() == DType::kF64)
      write_values<double>(file, parameter, values);
    else
      write_values<float>(file, parameter, values);
  }
  visit_attributes(model.config(), AttributeWriter(file));
  write_calibration(file, model.config());
  if (!text.vocabulary.empty()) {
    file.write_strings(kVocabulary, text.vocabulary);
    file.attribute(kVocabulary, "tokenizer", text.tokenizer);
    visit_specials(text.specials,
                   [&](const char* name, const std::string& value) { file.attribute(kVocabulary, name, value); });
  }
  return file.publish();
}

LoadedModel load_model(const std::string& path, DType dtype) {
  const h5::Reader file(path);
  const ModelConfig config = config_of(file);
  LoadedModel loaded{Model(config, dtype), tokenization_of(file, config.vocab_size)};
  read_parameters(file, loaded.model);
  return loaded;
}

ModelConfig read_model_config(const std::string& path) { return config_of(h5::Reader(path)); }

Tokenization read_tokenization(const std::string& path) {
  const h5::Reader file(path);
  return tokenization_of(file, config_of(file).vocab_size);
}

void load_parameters(const std::string& path, Model& model) { read_parameters(h5::Reader(path), model); }

std::string resolve_model_path(const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path(model);
  check(fs::exists(path, error), ExitCode::kIo, "{}: there is no such model file or directory", model);
  if (!fs::is_directory(path, error)) return model;
  const fs::path candidates[] = {path / "model.h5", path / "checkpoints" / "best" / "model.h5",
                                 path / "checkpoints" / "latest" / "model.h5"};
  for (const fs::path& candidate : candidates)
    if (fs::exists(candidate, error)) return candidate.string();
  check(!fs::exists(path / "model.safetensors", error), ExitCode::kData,
        "{}: holds an exported model; `gau import {} -o MODEL` makes one that runs", model, model);
  fail(ExitCode::kData, "{}: holds neither model.h5 nor checkpoints/best nor checkpoints/latest", model);
}

}  // namespace gau
