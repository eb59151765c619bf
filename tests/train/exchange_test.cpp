// The Hugging Face layout: the way there and back in three types, the golden logits on the way, what config.json may say.
#include "train/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "layers/parameter_names.h"
#include "tests/errors.h"
#include "tests/layers/golden.h"
#include "tests/train/quiet.h"
#include "tests/train/scratch.h"
#include "tests/train/tiny_model.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using parameter_names::kDecoder;
using parameter_names::kWord;
using safetensors::Type;
using testing::HasSubstr;

constexpr const char* kOutput = "gau_alpha.encoder.layer.1.gau.o_dense.weight";

Tokenization words() {
  return {"char", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\n", "词", std::string("\0", 1)}, SpecialNames{}};
}

LoadedModel make_model(const ModelConfig& config = tiny_model(), const Tokenization& text = words()) {
  LoadedModel loaded{Model(config), text};
  loaded.model.initialize(3);
  return loaded;
}

void expect_equal_values(const Model& a, const Model& b) {
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  EXPECT_EQ(std::memcmp(a.parameters().values().raw(), b.parameters().values().raw(), a.parameters().values().bytes()), 0);
}

class Exchange : public testing::Test {
 protected:
  void export_here(const LoadedModel& loaded, Type type = Type::kF32) const { export_model(directory_, loaded, type, true); }
  ordered_json config() const { return ordered_json::parse(read_bytes(directory_ + "/config.json")); }
  void write_config(const ordered_json& json) const { write("config.json", json.dump()); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }
  /// The tensors of an export, to be changed and written back.
  std::vector<safetensors::Source> tensors() const {
    const safetensors::Reader file(directory_ + "/model.safetensors");
    std::vector<safetensors::Source> sources;
    for (const auto& entry : file.entries()) {
      const std::vector<float> values = file.read(entry);
      sources.push_back({entry.name, entry.shape, [values] { return std::span<const float>(values); }});
    }
    return sources;
  }
  void write_tensors(const std::vector<safetensors::Source>& sources) const {
    safetensors::write(directory_ + "/model.safetensors", sources, Type::kF32);
  }
  std::string refusal(const ExchangeOptions& options = {}) const {
    const Error error = error_of([&] { import_model(directory_, options); });
    EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith(directory_));
    return error.what();
  }

  Quiet quiet_;
  Scratch scratch_;
  std::string directory_ = scratch_.file("hf");
};

TEST_F(Exchange, EverythingComesBack) {
  ModelConfig config = tiny_model();
  config.dropout = 0.3;
  config.attention_dropout = 0.05;
  config.norm_eps = 1e-9;
  config.attention.kind = AttentionKind::kCosine;
  config.attention.scale = 17.25;
  config.attention.learn_scale = true;
  config.attention.law = "infoscale:train=16;count=valid";
  config.attention.position = "rerope:w=8";
  config.attention.window = 5;
  config.attention.init_gamma = InitGamma::kSign;
  config.attention.mask_diagonal = true;
  config.attention.calibration = {{64, {1.0, 1.1}}, {128, {1.2, 1.3}, {0.1, 0.2}}};
  const LoadedModel loaded = make_model(config);
  export_here(loaded);
  const ExchangeImport read = import_model(directory_);
  const ModelConfig& back = read.loaded.model.config();
  EXPECT_EQ(back.layers, 2);
  EXPECT_EQ(back.dropout, 0.3);
  EXPECT_EQ(back.attention_dropout, 0.05);
  EXPECT_EQ(back.norm_eps, 1e-9);
  EXPECT_TRUE(back.tied);
  EXPECT_EQ(back.attention.kind, AttentionKind::kCosine);
  EXPECT_EQ(back.attention.scale, 17.25);
  EXPECT_TRUE(back.attention.learn_scale);
  EXPECT_EQ(back.attention.law, config.attention.law);
  EXPECT_EQ(back.attention.position, config.attention.position);
  EXPECT_EQ(back.attention.window, 5);
  EXPECT_EQ(back.attention.init_gamma, InitGamma::kSign);
  EXPECT_TRUE(back.attention.mask_diagonal);
  EXPECT_EQ(back.attention.train_length, 32);
  ASSERT_EQ(back.attention.calibration.size(), 2u);
  EXPECT_EQ(back.attention.calibration[1].factors, (std::vector<double>{1.2, 1.3}));
  EXPECT_EQ(back.attention.calibration[1].targets, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(read.loaded.text.vocabulary, words().vocabulary);
  EXPECT_EQ(read.loaded.text.tokenizer, "char");
  EXPECT_TRUE(read.notes.empty());
  expect_equal_values(read.loaded.model, loaded.model);
}

// The tensors of an export, imported and exported again in its type, have the same bytes: so have all of its files.
TEST_F(Exchange, ImportThenExportGivesTheSameBytes) {
  for (const Type type : {Type::kF32, Type::kBF16, Type::kF16}) {
    export_here(make_model(), type);
    const ExchangeImport read = import_model(directory_);
    const std::string again = scratch_.file(std::string("again-") + safetensors::name_of(type));
    EXPECT_EQ(export_model(again, read.loaded, type, false).rounding.changed, 0);
    for (const char* name : {"model.safetensors", "config.json", "vocab.txt"})
      EXPECT_EQ(read_bytes(directory_ + "/" + name), read_bytes(again + "/" + name)) << name;
  }
}

TEST_F(Exchange, AModelFileOnTheWayChangesNothing) {
  export_here(make_model(), Type::kBF16);
  const std::string path = scratch_.file("model.h5"), again = scratch_.file("again");
  const LoadedModel read = import_model(directory_).loaded;
  save_model(path, read.model, read.text);
  export_model(again, load_model(path), Type::kBF16, false);
  EXPECT_EQ(read_bytes(directory_ + "/model.safetensors"), read_bytes(again + "/model.safetensors"));
}

// Logits that an independent implementation computed from the same weights, after export and import.
TEST_F(Exchange, TheGoldenLogitsSurvive) {
  for (const char* name : {"softmax", "softmax_plus", "cos16_infoscale_T8", "softmax_untied"}) {
    golden::Case c(name);
    const Model original = c.model(DType::kF32);
    LoadedModel loaded{Model(c.config), {}};
    std::memcpy(loaded.model.parameters().values().raw(), original.parameters().values().raw(),
                original.parameters().values().bytes());
    export_here(loaded);
    const Model model = import_model(directory_).loaded.model;
    c.config = model.config();
    NoGrad no_grad;
    Planner planner = c.planner(DType::kF32);
    const Tensor logits = model.logits({}, model.hidden({}, c.inputs, planner), 24, {}).value();
    const auto wanted = golden::file().read<double>(std::string("/cases/") + name + "/logits");
    double most = 0, scale = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      most = std::max(most, std::abs(logits.at(static_cast<std::int64_t>(i)) - wanted[i]));
      scale = std::max(scale, std::abs(wanted[i]));
    }
    EXPECT_LE(most / scale, 1e-5) << name;
  }
}

TEST_F(Exchange, ATiedHeadIsWrittenAndMayBeMissing) {
  export_here(make_model());
  auto all = tensors();
  EXPECT_EQ(all.back().name, kDecoder);
  all.pop_back();
  write_tensors(all);
  EXPECT_TRUE(import_model(directory_).loaded.model.config().tied);
}

TEST_F(Exchange, AHeadOfItsOwnStays) {
  ModelConfig config = tiny_model();
  config.tied = false;
  const LoadedModel loaded = make_model(config);
  export_here(loaded);
  const ExchangeImport read = import_model(directory_);
  EXPECT_FALSE(read.loaded.model.config().tied);
  expect_equal_values(read.loaded.model, loaded.model);
  ordered_json json = this->config();
  json.erase("tie_word_embeddings");
  write_config(json);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("decoder.weight differs"), HasSubstr("\"tie_word_embeddings\": false")));
}

TEST_F(Exchange, MissingExtraAndMisshapenTensorsAreNamed) {
  export_here(make_model());
  const auto good = tensors();
  auto missing = good;
  std::erase_if(missing, [](const auto& tensor) { return tensor.name == kOutput; });
  write_tensors(missing);
  EXPECT_THAT(refusal(), HasSubstr(std::string(kOutput) + " is missing"));
  auto extra = good;
  extra.push_back({"gau_alpha.encoder.embed_positions.weight", {1}, [] {
                     static const float value = 1;
                     return std::span<const float>(&value, 1);
                   }});
  write_tensors(extra);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("embed_positions"), HasSubstr("--ignore-extra")));
  EXPECT_THAT(import_model(directory_, {.ignore_extra = true}).ignored,
              testing::ElementsAre("gau_alpha.encoder.embed_positions.weight"));
  // Columns for rows: another program's orientation.
  auto turned = good;
  for (auto& tensor : turned)
    if (tensor.name == kOutput) std::swap(tensor.shape[0], tensor.shape[1]);
  write_tensors(turned);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr(kOutput), HasSubstr("[20, 12]")));
  auto gap = good;
  for (auto& tensor : gap)
    if (tensor.name == kOutput) tensor.name = "gau_alpha.encoder.layer.7.gau.o_dense.weight";
  write_tensors(gap);
  EXPECT_THAT(refusal(), HasSubstr("is missing"));
}

TEST_F(Exchange, ValuesMustBeFinite) {
  export_here(make_model());
  auto all = tensors();
  static std::vector<float> values;
  for (auto& tensor : all)
    if (tensor.name == kOutput) {
      const auto span = tensor.values();
      values.assign(span.begin(), span.end());
      values[5] = std::nanf("");
      tensor.values = [] { return std::span<const float>(values); };
    }
  write_tensors(all);
  EXPECT_THAT(refusal(), HasSubstr("element 5 is not finite"));
}

// What the published checkpoint's own file says, in little.
ordered_json published() {
  return ordered_json::parse(R"({"architectures": ["GAUAlphaForMaskedLM"], "attention_key_size": 6,
    "attention_probs_dropout_prob": 0.1, "attention_scale": true, "classifier_dropout": 0.1, "embedding_size": 12,
    "gradient_checkpointing": false, "hidden_act": "swish", "hidden_dropout_prob": 0.1, "hidden_size": 12,
    "initializer_range": 0.02, "intermediate_size": 20, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "model_type": "gau_alpha", "normalization": "softmax_plus", "num_hidden_layers": 2, "pad_token_id": 0,
    "torch_dtype": "float32", "transformers_version": "4.17.0", "type_vocab_size": 2, "use_bias": false, "vocab_size": 9})");
}

TEST_F(Exchange, APublishedConfigurationHasItsDefaultsAndSaysSo) {
  export_here(make_model());
  write_config(published());
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nc\nd\n");
  const ExchangeImport read = import_model(directory_);
  const AttentionConfig& attention = read.loaded.model.config().attention;
  EXPECT_EQ(attention.kind, AttentionKind::kDot);
  EXPECT_EQ(attention.position, "rope");
  EXPECT_EQ(attention.law, "softmax-plus");
  EXPECT_EQ(attention.train_length, 512);
  EXPECT_EQ(read.loaded.text.tokenizer, "wordpiece");
  ASSERT_EQ(read.notes.size(), 2u);
  EXPECT_THAT(read.notes[0], testing::AllOf(HasSubstr("no key \"gau\""), HasSubstr("L_train 512"), HasSubstr("softmax-plus")));
  EXPECT_THAT(read.notes[1], HasSubstr("wordpiece is not built in"));
  EXPECT_EQ(import_model(directory_, {.tokenizer = "char"}).loaded.text.tokenizer, "char");
}

TEST_F(Exchange, SettingsThatNoModelHereHasAreRefused) {
  export_here(make_model());
  const ordered_json good = published();
  const std::pair<const char*, ordered_json> cases[] = {{"normalization", "squared_relu"},
                                                        {"hidden_act", "relu"},
                                                        {"use_bias", true},
                                                        {"attention_scale", false},
                                                        {"model_type", "roformer"},
                                                        {"num_hidden_layers", 6},
                                                        {"hidden_size", 768},
                                                        {"embedding_size", 13},
                                                        {"vocab_size", 12000},
                                                        {"attention_key_size", 128},
                                                        {"rope_theta", 500000},
                                                        {"rope_scaling", {{"type", "yarn"}}},
                                                        {"num_attention_heads", 12},
                                                        {"pad_token_id", 9},
                                                        {"pad_token_id", 3},
                                                        {"layer_norm_eps", "small"},
                                                        {"hidden_dropout_prob", 1.5},
                                                        {"max_position_embeddings", -5},
                                                        {"my_info_dict", {{"task", "train"}}},
                                                        {"gau", 5}};
  for (const auto& [key, value] : cases) {
    ordered_json json = good;
    json[key] = value;
    write_config(json);
    EXPECT_THAT(refusal(), HasSubstr("/")) << key;
  }
  ordered_json json = good;
  json["colour"] = "blue";
  write_config(json);
  EXPECT_THAT(import_model(directory_).notes, testing::Contains(HasSubstr("ignores the key \"colour\"")));
}

TEST_F(Exchange, OurOwnKeysAreChecked) {
  export_here(make_model());
  const ordered_json good = config();
  const std::pair<const char*, ordered_json> cases[] = {{"kind", "linear"},      {"kind", 3},
                                                        {"law", "magic"},        {"position", "rope+rope"},
                                                        {"L_train", 1.5},        {"L_train", -1},
                                                        {"scale", "32"},         {"learn_scale", 1},
                                                        {"colour", "blue"},      {"tokenizer", "magic"},
                                                        {"mask", "[mask]"},      {"rows", {{"9", "x"}}},
                                                        {"rows", {{"-1", "x"}}}, {"calibration", {{"length", 5}}}};
  for (const auto& [key, value] : cases) {
    ordered_json json = good;
    json["gau"][key] = value;
    write_config(json);
    EXPECT_FALSE(refusal().empty()) << key;
  }
  ordered_json json = good;
  json["normalization"] = "softmax_plus";
  write_config(json);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("normalization = \"softmax_plus\""), HasSubstr("gau.law")));
}

TEST_F(Exchange, TheVocabularyMustFit) {
  export_here(make_model());
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
  EXPECT_THAT(refusal(), HasSubstr("vocab.txt: has 8 lines for a model with 9 tokens"));
  write("vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n");
  EXPECT_THAT(refusal(), HasSubstr("[PAD] is on row 1, but pad_token_id"));
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n");
  EXPECT_THAT(refusal(), HasSubstr("row 6 is \"b\", but gau.rows"));
  write("vocab.txt", "<pad>\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n[unused6]\nc\nd\n");
  EXPECT_THAT(refusal(), HasSubstr("has no [PAD]"));
  EXPECT_EQ(import_model(directory_, {.specials = {"<pad>", "", "", "", ""}}).loaded.text.vocabulary[0], "<pad>");
  fs::remove(directory_ + "/vocab.txt");
  EXPECT_THAT(import_model(directory_).notes, testing::Contains(HasSubstr("no vocab.txt")));
}

TEST_F(Exchange, WhatIsNotThereIsNamed) {
  EXPECT_EQ(error_of([&] { import_model(directory_); }).code(), ExitCode::kIo);
  export_here(make_model());
  fs::remove(directory_ + "/config.json");
  EXPECT_THAT(refusal(), HasSubstr("config.json: is missing"));
  fs::rename(directory_ + "/model.safetensors", directory_ + "/pytorch_model.bin");
  EXPECT_THAT(refusal(), HasSubstr("torch_to_safetensors.py"));
}

TEST_F(Exchange, ADirectoryIsReplacedOnlyWhenToldAndOnlyIfItIsAnExport) {
  const LoadedModel loaded = make_model();
  fs::create_directories(directory_);
  export_model(directory_, loaded, Type::kF32, false);
  const Error present = error_of([&] { export_model(directory_, loaded, Type::kBF16, false); });
  EXPECT_EQ(present.code(), ExitCode::kUsage);
  EXPECT_THAT(present.what(), HasSubstr("--overwrite"));
  export_model(directory_, loaded, Type::kBF16, true);
  EXPECT_EQ(import_model(directory_).dtypes, (std::vector<std::string>{"BF16"}));
  write("notes.txt", "mine");
  const Error foreign = error_of([&] { export_model(directory_, loaded, Type::kF32, true); });
  EXPECT_EQ(foreign.code(), ExitCode::kUsage);
  EXPECT_THAT(foreign.what(), HasSubstr("notes.txt"));
  EXPECT_TRUE(fs::exists(directory_ + "/notes.txt"));
}

TEST_F(Exchange, AFailedExportLeavesNothing) {
  LoadedModel loaded = make_model();
  loaded.model.parameters().values().data<float>()[3] = 1e5F;
  const Error error = error_of([&] { export_model(directory_, loaded, Type::kF16, false); });
  EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(kWord), HasSubstr("element 3")));
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

}  // namespace
}  // namespace gau
