// One function a group of keys. Every key is read through Keys, which knows the file and remembers what was asked for, so that
// what nobody asked for is named.
#include "train/exchange_config.h"

#include <cmath>
#include <set>

#include "framework/error.h"
#include "layers/method.h"
#include "train/strict_json.h"

namespace gau {
namespace {

using Json = StrictJson;

constexpr int kMostDepth = 32;
constexpr const char* kOurs = "gau";
constexpr std::int64_t kPublishedLength = 512;

/// Keys of other programs' that say nothing about what the model computes.
constexpr const char* kInert[] = {"_name_or_path",
                                  "architectures",
                                  "bos_token_id",
                                  "classifier_dropout",
                                  "dtype",
                                  "eos_token_id",
                                  "gradient_checkpointing",
                                  "id2label",
                                  "initializer_range",
                                  "label2id",
                                  "model_type",
                                  "output_attentions",
                                  "output_hidden_states",
                                  "problem_type",
                                  "return_dict",
                                  "sep_token_id",
                                  "tokenizer_class",
                                  "torch_dtype",
                                  "torchscript",
                                  "transformers_version",
                                  "use_cache"};

class Keys {
 public:
  Keys(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  /// The value of a key, or nullptr when it is absent or null.
  const Json* find(const char* key) {
    asked_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void read(const char* key, std::int64_t& value) {
    if (const Json* json = find(key)) {
      expect(key, json->is_number_integer() && (!json->is_number_unsigned() || json->get<std::uint64_t>() < kMost),
             "a whole number");
      json->get_to(value);
    }
  }
  void read(const char* key, double& value) {
    if (const Json* json = find(key)) {
      expect(key, json->is_number() && std::isfinite(json->get<double>()), "a number");
      json->get_to(value);
    }
  }
  void read(const char* key, bool& value) {
    if (const Json* json = find(key)) {
      expect(key, json->is_boolean(), "true or false");
      json->get_to(value);
    }
  }
  void read(const char* key, std::string& value) {
    if (const Json* json = find(key)) {
      expect(key, json->is_string(), "text");
      json->get_to(value);
    }
  }
  void expect(const char* key, bool holds, const char* what) const {
    check(holds, ExitCode::kData, "{}: {} must be {}", where_, key, what);
  }
  /// Keys with a value that nobody asked for.
  std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : json_.items())
      if (!asked_.contains(key) && !value.is_null()) names.push_back(key);
    return names;
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const Json& json_;
  std::string where_;
  std::set<std::string> asked_;
};

/// A key whose value must be what the tensors say.
void agree(Keys& keys, const char* key, std::int64_t tensors) {
  std::int64_t value = tensors;
  keys.read(key, value);
  check(value == tensors, ExitCode::kData, "{}: {} = {}, but the tensors have {}", keys.where(), key, value, tensors);
}

/// A setting that is built in here with one value only.
template <class T>
void only(Keys& keys, const char* key, T value) {
  const T known = value;
  keys.read(key, value);
  check(value == known, ExitCode::kData, "{}: {} = {}: only {} is known here", keys.where(), key, value, known);
}

void read_sizes(Keys& keys, ExchangeConfig& config) {
  ModelConfig& model = config.model;
  agree(keys, "num_hidden_layers", model.layers);
  agree(keys, "hidden_size", model.hidden);
  agree(keys, "embedding_size", model.hidden);
  agree(keys, "intermediate_size", model.intermediate);
  agree(keys, "attention_key_size", model.key_size);
  agree(keys, "vocab_size", model.vocab_size);
  agree(keys, "type_vocab_size", model.type_vocab_size);
  keys.read("hidden_dropout_prob", model.dropout);
  keys.read("attention_probs_dropout_prob", model.attention_dropout);
  keys.read("layer_norm_eps", model.norm_eps);
  keys.read("pad_token_id", model.pad_id);
  keys.read("tie_word_embeddings", config.ties);
}

/// Settings of other variants: what is computed here has one value of each.
void check_variant(Keys& keys) {
  std::string kind = "gau_alpha", activation = "swish";
  keys.read("model_type", kind);
  check(kind == "gau_alpha", ExitCode::kData, "{}: model_type = {}: only gau_alpha can be read", keys.where(), shown(kind));
  keys.read("hidden_act", activation);
  check(activation == "swish" || activation == "silu", ExitCode::kData, "{}: hidden_act = {}: only swish is known here",
        keys.where(), shown(activation));
  only(keys, "use_bias", false);
  only(keys, "attention_scale", true);
  only(keys, "num_attention_heads", std::int64_t{1});
  only(keys, "is_decoder", false);
  only(keys, "rope_theta", 10000.0);
  check(keys.find("rope_scaling") == nullptr, ExitCode::kData,
        "{}: rope_scaling: stretched positions are a method of evaluation here (--methods pi, ntk, yarn); remove the key",
        keys.where());
}

/// What `normalization` calls a law, or "" for one that it has no name for.
std::string normalization_of(const ModelConfig& model) {
  const LawTerm law = model_law(model);
  if (law.kind == LawKind::kNone) return "softmax";
  const bool plain = law.numbers.empty() || (law.numbers.size() == 1 && law.number("base") == 512);
  return law.kind == LawKind::kSoftmaxPlus && plain ? "softmax_plus" : "";
}

std::string law_of(const std::string& normalization, const std::string& where) {
  if (normalization == "softmax") return "none";
  if (normalization == "softmax_plus") return "softmax-plus";
  fail(ExitCode::kData, "{}: normalization = {}: known are softmax and softmax_plus", where, shown(normalization));
}

/// The settings of a published GAU-α, or of one that was trained further from it without gau.
void read_published(Keys& keys, ExchangeConfig& config) {
  AttentionConfig& attention = config.model.attention;
  std::string normalization = "softmax_plus";
  keys.read("normalization", normalization);
  attention.law = law_of(normalization, keys.where());
  attention.train_length = kPublishedLength;
  keys.read("max_position_embeddings", attention.train_length);
  config.text.tokenizer = "wordpiece";
  config.notes.push_back(fmt::format(
      "no key \"{}\": taken as GAU-α is published: dot-product attention, RoPE, law {} (normalization {}), L_train {} "
      "(max_position_embeddings), tokenizer wordpiece",
      kOurs, attention.law, normalization, attention.train_length));
  check(keys.find("my_info_dict") == nullptr, ExitCode::kData,
        "{}: my_info_dict says how attention was changed in training, which is not read here: state it under \"{}\" (kind, "
        "scale, law, "
        "L_train) and remove the key",
        keys.where(), kOurs);
}

void read_calibration(Keys& keys, ModelConfig& model) {
  const Json* list = keys.find("calibration");
  if (list == nullptr) return;
  keys.expect("calibration", list->is_array(), "a list");
  for (const Json& entry : *list) {
    keys.expect("calibration", entry.is_object(), "a list of objects");
    Keys fields(entry, keys.where() + ": calibration");
    Calibration calibration;
    fields.read("length", calibration.length);
    for (const auto& [key, values] : {std::pair{"factors", &calibration.factors}, std::pair{"targets", &calibration.targets}}) {
      const Json* numbers = fields.find(key);
      if (numbers == nullptr) continue;
      fields.expect(key, numbers->is_array(), "a list of numbers");
      for (const Json& number : *numbers) {
        fields.expect(key, number.is_number() && std::isfinite(number.get<double>()), "a list of numbers");
        values->push_back(number.get<double>());
      }
    }
    check(calibration.targets.empty() || calibration.targets.size() == calibration.factors.size(), ExitCode::kData,
          "{}: {} targets for {} factors", fields.where(), calibration.targets.size(), calibration.factors.size());
    model.attention.calibration.push_back(std::move(calibration));
  }
}

void read_tokenization(Keys& keys, ExchangeConfig& config) {
  keys.read("tokenizer", config.text.tokenizer);
  keys.read("pad", config.text.specials.pad);
  keys.read("unk", config.text.specials.unk);
  keys.read("cls", config.text.specials.cls);
  keys.read("sep", config.text.specials.sep);
  keys.read("mask", config.text.specials.mask);
  const Json* rows = keys.find("rows");
  if (rows == nullptr) return;
  keys.expect("rows", rows->is_object(), "an object of tokens by id");
  for (const auto& [id, token] : rows->items()) {
    const bool whole = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    keys.expect("rows", whole && token.is_string() && std::stoll(id) < config.model.vocab_size, "an object of tokens by id");
    config.rows[std::stoll(id)] = token.get<std::string>();
  }
}

void read_ours(const Json& ours, const std::string& path, ExchangeConfig& config) {
  check(ours.is_object(), ExitCode::kData, "{}: {} must be an object", path, kOurs);
  Keys keys(ours, path + ": " + kOurs);
  AttentionConfig& attention = config.model.attention;
  std::string kind = name_of(attention.kind), gamma = name_of(attention.init_gamma);
  keys.read("kind", kind);
  keys.read("scale", attention.scale);
  keys.read("learn_scale", attention.learn_scale);
  keys.read("scale_warmup", attention.scale_warmup);
  keys.read("law", attention.law);
  keys.read("position", attention.position);
  keys.read("window", attention.window);
  keys.read("init_gamma", gamma);
  keys.read("mask_diagonal", attention.mask_diagonal);
  keys.read("L_train", attention.train_length);
  read_calibration(keys, config.model);
  attention.kind = parse_attention_kind(kind);
  attention.init_gamma = parse_init_gamma(gamma);
  read_tokenization(keys, config);
  const std::vector<std::string> unknown = keys.others();
  check(unknown.empty(), ExitCode::kData, "{}: unknown key {}; written by a newer program?", keys.where(),
        shown(unknown.empty() ? "" : unknown.front()));
}

/// The two places that name the law must agree: one of them was edited otherwise.
void check_normalization(Keys& keys, const ModelConfig& model) {
  const std::string ours = normalization_of(model);
  std::string theirs = ours.empty() ? "softmax" : ours;
  const std::string wanted = theirs;
  keys.read("normalization", theirs);
  check(theirs == wanted, ExitCode::kData, "{}: normalization = {}, but {}.law = {} means {}", keys.where(), shown(theirs),
        kOurs, model.attention.law, wanted);
  keys.find("max_position_embeddings");
}

Json published_json(const ModelConfig& model) {
  const std::string normalization = normalization_of(model);
  Json json;
  json["architectures"] = {"GAUAlphaForMaskedLM"};
  json["model_type"] = "gau_alpha";
  json["num_hidden_layers"] = model.layers;
  json["hidden_size"] = model.hidden;
  json["embedding_size"] = model.hidden;
  json["intermediate_size"] = model.intermediate;
  json["attention_key_size"] = model.key_size;
  json["vocab_size"] = model.vocab_size;
  json["type_vocab_size"] = model.type_vocab_size;
  json["hidden_act"] = "swish";
  json["use_bias"] = false;
  json["attention_scale"] = true;
  json["normalization"] = normalization.empty() ? "softmax" : normalization;
  json["layer_norm_eps"] = model.norm_eps;
  json["hidden_dropout_prob"] = model.dropout;
  json["attention_probs_dropout_prob"] = model.attention_dropout;
  json["max_position_embeddings"] = std::max(kPublishedLength, model.attention.train_length);
  json["pad_token_id"] = model.pad_id;
  json["tie_word_embeddings"] = model.tied;
  return json;
}

Json attention_json(const AttentionConfig& attention) {
  Json json;
  json["kind"] = name_of(attention.kind);
  json["scale"] = attention.scale;
  json["learn_scale"] = attention.learn_scale;
  json["scale_warmup"] = attention.scale_warmup;
  json["law"] = attention.law;
  json["position"] = attention.position;
  json["window"] = attention.window;
  json["init_gamma"] = name_of(attention.init_gamma);
  json["mask_diagonal"] = attention.mask_diagonal;
  json["L_train"] = attention.train_length;
  for (const Calibration& entry : attention.calibration)
    json["calibration"].push_back({{"length", entry.length}, {"factors", entry.factors}, {"targets", entry.targets}});
  return json;
}

Json tokenization_json(const Tokenization& text) {
  Json json;
  json["tokenizer"] = text.tokenizer;
  json["pad"] = text.specials.pad;
  json["unk"] = text.specials.unk;
  json["cls"] = text.specials.cls;
  json["sep"] = text.specials.sep;
  json["mask"] = text.specials.mask;
  for (const auto& [id, token] : rows_beyond_lines(text.vocabulary)) json["rows"][std::to_string(id)] = token;
  return json;
}

}  // namespace

std::map<std::int64_t, std::string> rows_beyond_lines(const std::vector<std::string>& vocabulary) {
  std::map<std::int64_t, std::string> rows;
  for (std::size_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary[id].find_first_of("\r\n") != std::string::npos) rows[static_cast<std::int64_t>(id)] = vocabulary[id];
  return rows;
}

std::string unknown_to_others(const ModelConfig& model) {
  const AttentionConfig& attention = model.attention;
  std::string text;
  const auto add = [&](bool differs, const std::string& what) {
    if (differs) text += (text.empty() ? "" : ", ") + what;
  };
  add(attention.kind != AttentionKind::kDot, fmt::format("{} attention", name_of(attention.kind)));
  add(normalization_of(model).empty(), "law " + attention.law);
  add(attention.position != "rope", "position " + attention.position);
  add(attention.window != 0, fmt::format("window {}", attention.window));
  add(attention.mask_diagonal, "masked diagonal");
  return text;
}

std::string exchange_config_text(const ModelConfig& model, const Tokenization& text, safetensors::Type type) {
  Json json = published_json(model);
  json["torch_dtype"] = type == safetensors::Type::kF32 ? "float32" : type == safetensors::Type::kBF16 ? "bfloat16" : "float16";
  json[kOurs] = attention_json(model.attention);
  if (!text.vocabulary.empty()) json[kOurs].update(tokenization_json(text));
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    fail(ExitCode::kData,
         "the vocabulary has a special token, or one with a line end, that is not UTF-8: config.json cannot hold it");
  }
}

ExchangeConfig parse_exchange_config(std::string_view text, const ModelConfig& sizes, const std::string& path) {
  const Json json = parse_strict_json(text, kMostDepth, path);
  ExchangeConfig config;
  config.model = sizes;
  Keys keys(json, path);
  check_variant(keys);
  read_sizes(keys, config);
  try {
    const Json* ours = keys.find(kOurs);
    if (ours == nullptr) {
      read_published(keys, config);
    } else {
      read_ours(*ours, path, config);
      check_normalization(keys, config.model);
    }
    config.model.validate();
  } catch (const Error& error) {
    const std::string message = error.what();
    fail(ExitCode::kData, "{}", message.starts_with(path) ? message : path + ": " + message);
  }
  for (const char* key : kInert) keys.find(key);
  for (const std::string& key : keys.others()) config.notes.push_back(fmt::format("ignores the key {}", shown(key)));
  return config;
}

}  // namespace gau
