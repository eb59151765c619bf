// The reference values in tests/golden/golden.h5: a tiny GAU-α in double, made by an independent implementation.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "layers/model.h"

namespace gau::golden {

inline const h5::Reader& file() {
  static const h5::Reader reader(GAU_SOURCE_DIR "/tests/golden/golden.h5");
  return reader;
}

/// Golden name of a parameter -> its name in the model.
inline std::string model_name(const std::string& golden) {
  if (golden == "word_embeddings" || golden == "token_type_embeddings") return "gau_alpha.embeddings." + golden + ".weight";
  if (golden == "decoder") return "cls.predictions.decoder.weight";
  const std::string layer = golden.substr(5, golden.find('.') - 5);
  std::string part = golden.substr(golden.find('.') + 1);
  if (part == "q_scale") part = "q_scaleoffset";
  if (part == "k_scale") part = "k_scaleoffset";
  return "gau_alpha.encoder.layer." + layer + ".gau." + part + ".weight";
}

/// One case: its model, its method, its inputs.
struct Case {
  std::string name;
  ModelConfig config;
  std::string method;
  bool quirks = false;
  bool types = false;
  ModelInputs inputs;

  explicit Case(const std::string& case_name) : name(case_name) {
    const std::string at = "/cases/" + name;
    const h5::Reader& f = file();
    const auto real = [&](const char* key) { return f.real_attribute(at, key); };
    const auto whole = [&](const char* key) { return f.int_attribute(at, key); };
    config.layers = 2;
    config.hidden = 32;
    config.intermediate = 64;
    config.key_size = 16;
    config.vocab_size = 50;
    config.tied = whole("tied") != 0;
    config.attention.train_length = 64;
    if (!std::isnan(real("cos_scale"))) {
      config.attention.kind = AttentionKind::kCosine;
      config.attention.scale = real("cos_scale");
    }
    quirks = whole("quirks") != 0;
    types = whole("types") != 0;
    method = position_term(f.string_attribute(at, "algorithm"), real, whole) +
             law_term(f.string_attribute(at, "normalization"), whole("train_len"));

    inputs.ids = Tensor::from(f.read<std::int32_t>("/inputs/input_ids"), {3, 24});
    std::vector<std::int32_t> mask = f.read<std::int32_t>("/inputs/attention_mask");
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (whole("mask_all_ones")) mask[i] = 1;
      if (whole("mask_row1_one_key") && i / 24 == 1) mask[i] = i == 24;
    }
    inputs.key_mask = Tensor::from(mask, {3, 24});
    if (types) inputs.types = Tensor::from(f.read<std::int32_t>("/inputs/type_ids"), {3, 24});
  }

  Planner planner(DType dtype) const { return Planner(config, parse_method(method), dtype); }

  /// The model with the golden weights.
  Model model(DType dtype) const {
    Model result(config, dtype);
    for (const std::string& golden_name : file().list("/weights")) {
      if (golden_name == "decoder" && config.tied) continue;
      const std::vector<double> values = file().read<double>("/weights/" + golden_name);
      Tensor into = result.parameters().find(model_name(golden_name)).variable.value();
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (dtype == DType::kF64) {
          into.data<double>()[i] = values[i];
        } else {
          into.data<float>()[i] = static_cast<float>(values[i]);
        }
      }
    }
    return result;
  }

 private:
  template <class Real, class Whole>
  static std::string position_term(const std::string& algorithm, Real&& real, Whole&& whole) {
    const std::int64_t train = whole("train_len"), window = whole("window"), sinks = whole("sinks");
    if (algorithm == "pi") return fmt::format("pi:factor={}", real("scale"));
    if (algorithm == "yarn") return fmt::format("yarn:train={};factor={}", train, real("scale"));
    if (algorithm == "alibi") return fmt::format("alibi:m={}", real("slope"));
    if (algorithm == "window") return fmt::format("window:w={}", window);
    if (algorithm == "streaming") {
      return fmt::format("streaming:window={0};sinks={1};rows={1};positions=absolute", train - 1, sinks);
    }
    if (algorithm == "lm_infinite") return fmt::format("lm-infinite:window={0};sinks={1};rows={1};clamp={0}", train - 1, sinks);
    if (algorithm == "rerope") {
      const double clamp = real("clamp");
      return fmt::format("rerope:w={};clamp={}", window, std::isnan(clamp) ? window - 1 : static_cast<std::int64_t>(clamp));
    }
    return "rope";
  }

  static std::string law_term(const std::string& normalization, std::int64_t train) {
    if (normalization == "softmax_plus") return "+softmax-plus";
    if (normalization == "infoscale") return fmt::format("+infoscale:train={};count=valid", train);
    return "";
  }
};

}  // namespace gau::golden
