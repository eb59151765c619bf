#include "layers/model_check.h"

#include <algorithm>

#include "framework/error.h"
#include "layers/model.h"

namespace gau {

namespace {

ModelConfig tiny_config() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 12;
  config.intermediate = 10;
  config.key_size = 6;
  config.vocab_size = 17;
  config.dropout = 0.1;
  config.attention_dropout = 0.2;
  config.attention.train_length = 8;
  return config;
}

ModelConfig with_kind(AttentionKind kind, double scale) {
  ModelConfig config = tiny_config();
  config.attention.kind = kind;
  config.attention.scale = scale;
  return config;
}

// Two sequences of 11, the second padded after 7; five labelled rows, three of padding.
struct Example {
  ModelInputs inputs;
  Tensor labels;
};

Example example() {
  constexpr std::int64_t kBatch = 2, kLength = 11, kTokens = 7;
  std::vector<std::int32_t> ids, mask, types;
  for (std::int32_t i = 0; i < kBatch * kLength; ++i) {
    const bool token = i < kLength + kTokens;
    ids.push_back(token ? 1 + (i * 7 + i * i) % 16 : 0);
    mask.push_back(token);
    types.push_back(i % 3 == 0);
  }
  Example e;
  e.inputs.ids = Tensor::from(ids, {kBatch, kLength});
  e.inputs.types = Tensor::from(types, {kBatch, kLength});
  e.inputs.key_mask = Tensor::from(mask, {kBatch, kLength});
  e.inputs.rows = Tensor::from(std::vector<std::int32_t>{1, 4, 10, 12, 17, -1, -1, -1}, {8});
  e.labels = Tensor::from(std::vector<std::int32_t>{3, 16, 1, 7, 9, -1, -1, -1}, {8});
  return e;
}

}  // namespace

std::vector<ModelCase> model_cases() {
  ModelConfig learned = with_kind(AttentionKind::kCosine, 5);
  learned.attention.learn_scale = true;
  ModelConfig untied = tiny_config();
  untied.tied = false;
  ModelConfig ssmax = tiny_config();
  ssmax.attention.law = "ssmax";
  return {
      {"dot", tiny_config(), "rope"},
      {"dot, composed", tiny_config(), "rope", true},
      {"dot, softmax_plus, untied", untied, "rope+softmax-plus"},
      {"cosine, infoscale", with_kind(AttentionKind::kCosine, 4), "rope+infoscale"},
      {"cosine, learned s", learned, "rope"},
      {"keynorm", with_kind(AttentionKind::kKeyNorm, 1), "rope"},
      {"ssmax", ssmax, "rope"},
      {"rerope", tiny_config(), "rerope:w=3"},
      {"window", tiny_config(), "window:w=2"},
      {"streaming", tiny_config(), "streaming:window=2;sinks=2"},
      {"alibi", tiny_config(), "alibi"},
  };
}

GradCheckResult check_model(const ModelCase& model_case) {
  Model model(model_case.config, DType::kF64);
  model.initialize(5);
  Planner planner(model_case.config, parse_method(model_case.method), DType::kF64);
  const Example e = example();
  Context context;
  context.training = true;
  context.seed = 3;
  context.composed = model_case.composed;
  const auto loss = [&] { return model.masked_loss(context, e.inputs, e.labels, planner).sum; };

  FlatParameters& parameters = model.parameters();
  parameters.zero_gradients();
  backward(loss());

  constexpr std::int64_t kSamples = 25;
  constexpr double kStep = 1e-5;
  GradCheckResult result;
  NoGrad no_grad;
  for (const Parameter& parameter : parameters.list()) {
    Tensor value = parameter.variable.value();
    const std::int64_t stride = std::max<std::int64_t>(1, value.size() / kSamples);
    for (std::int64_t i = 0; i < value.size(); i += stride) {
      // The embedding look-up passes no gradient to the row of [PAD]; differences would see one through the padded positions.
      if (parameter.offset == 0 && i / value.columns() == model_case.config.pad_id) continue;
      double& element = value.data<double>()[i];
      const double before = element;
      element = before + kStep;
      const double above = loss().value().item();
      element = before - kStep;
      const double below = loss().value().item();
      element = before;
      result.compare(parameter.variable.grad().at(i), (above - below) / (2 * kStep), fmt::format("{}[{}]", parameter.name, i));
    }
  }
  return result;
}

}  // namespace gau
