#include "layers/model.h"

#include <cmath>

#include "autograd/composed.h"
#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/initializer.h"

namespace gau {

namespace {
constexpr const char* kWord = "gau_alpha.embeddings.word_embeddings.weight";
constexpr const char* kType = "gau_alpha.embeddings.token_type_embeddings.weight";
constexpr const char* kDecoder = "cls.predictions.decoder.weight";

void check_ids(const Tensor& ids, std::int64_t limit, const char* what) {
  const auto values = ids.span<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= 0 && values[i] < limit, ExitCode::kData, "{}: value {} at row {}, column {} is not in [0, {})", what,
          values[i], static_cast<std::int64_t>(i) / ids.columns(), static_cast<std::int64_t>(i) % ids.columns(), limit);
  }
}
}  // namespace

Model::Model(const ModelConfig& config, DType dtype) : config_(config), dtype_(dtype) {
  config_.validate();
  parameters_.add(kWord, {config_.vocab_size, config_.hidden});
  parameters_.add(kType, {config_.type_vocab_size, config_.hidden});
  for (std::int64_t i = 0; i < config_.layers; ++i) GauLayer::add_parameters(parameters_, config_, i);
  if (!config_.tied) parameters_.add(kDecoder, {config_.vocab_size, config_.hidden});
  parameters_.allocate(dtype);
  for (std::int64_t i = 0; i < config_.layers; ++i) layers_.emplace_back(parameters_, config_, i);
  word_ = parameters_.find(kWord).variable;
  type_ = parameters_.find(kType).variable;
  decoder_ = config_.tied ? word_ : parameters_.find(kDecoder).variable;
}

void Model::initialize(std::uint64_t seed) {
  const AttentionConfig& attention = config_.attention;
  Planner planner(config_, Method{}, dtype_);
  std::uint32_t stream = 0;
  std::int64_t layer = -1;  // parameters lie in the order of layers, each beginning with its i_dense
  for (const Parameter& parameter : parameters_.list()) {
    const RandomKey key{seed, 0, Site::kInitializer, stream++};
    Tensor value = parameter.variable.value();
    layer += parameter.name.ends_with("i_dense.weight");
    if (parameter.name.ends_with("cosine_scale")) {
      kernels::fill(value, attention.scale);
    } else if (parameter.name.ends_with("ssmax_scale")) {
      check(attention.train_length > 1, ExitCode::kData, "[attention] law = \"ssmax\" needs [data] length of at least 2");
      kernels::fill(value, 1 / std::log(static_cast<double>(attention.train_length)));
    } else if (parameter.name.ends_with("_scaleoffset.weight")) {
      const bool rotates = planner.plan(layer, {1, 2, {}, {}, 0}).near.q.defined();
      initialize_gamma(value, attention, rotates, key);
    } else {
      fill_truncated_normal(value, initial_std(parameter.shape[1], config_.layers), key);
    }
  }
}

Variable Model::hidden(const Context& context, const ModelInputs& inputs, Planner& planner,
                       const std::function<void(std::int64_t, const Variable&)>& observer) const {
  check(inputs.ids.defined() && inputs.ids.shape().rank() == 2, ExitCode::kData, "model: input_ids must be [batch, length]");
  check_ids(inputs.ids, config_.vocab_size, "input_ids");
  if (inputs.types.defined()) check_ids(inputs.types, config_.type_vocab_size, "type_ids");
  const std::int64_t batch = inputs.ids.dim(0), length = inputs.ids.dim(1);
  const auto norm = context.composed ? composed::residual_rms_norm : ops::residual_rms_norm;

  Variable x = ops::embed(word_, type_, inputs.ids, inputs.types, config_.pad_id);
  x = norm({}, x, context.dropout(config_.dropout, Site::kEmbeddingDropout, 0, length), config_.norm_eps);
  if (observer) observer(0, x);

  const BatchLayout layout{batch, length, inputs.key_mask, inputs.positions, inputs.nominal_length};
  const QueryRows all, wanted = group_rows(inputs.rows, batch, length);
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const AttentionPlan plan = planner.plan(i, layout, context.cosine_scale);
    x = layers_[static_cast<std::size_t>(i)].forward(context, x, inputs.key_mask, plan, i + 1 == config_.layers ? wanted : all);
    if (observer) observer(i + 1, x);
  }
  return x;
}

Variable Model::logits(const Context& context, const Variable& x, std::int64_t length, const Tensor& rows) const {
  return ops::linear(ops::dropout(x, context.dropout(config_.dropout, Site::kHeadDropout, 0, length, rows)), decoder_);
}

MaskedLoss Model::masked_loss(const Context& context, const ModelInputs& inputs, const Tensor& labels, Planner& planner) const {
  check(inputs.rows.defined() && labels.size() == inputs.rows.size(), ExitCode::kData, "model: {} labels for {} masked rows",
        labels.size(), inputs.rows.defined() ? inputs.rows.size() : 0);
  const Variable x = hidden(context, inputs, planner);
  const ops::CrossEntropy loss = ops::cross_entropy(logits(context, x, inputs.ids.dim(1), inputs.rows), labels);
  MaskedLoss result{loss.sum, loss.row_loss, loss.predicted};
  const auto label = labels.span<std::int32_t>();
  const auto predicted = loss.predicted.span<std::int32_t>();
  for (std::size_t m = 0; m < label.size(); ++m) {
    if (label[m] < 0) continue;
    ++result.count;
    result.correct += predicted[m] == label[m];
  }
  return result;
}

Variable Model::visit_attention(const ModelInputs& inputs, Planner& planner, const AttentionVisitor& visit) const {
  NoGrad no_grad;
  const std::int64_t batch = inputs.ids.dim(0), length = inputs.ids.dim(1);
  const BatchLayout layout{batch, length, inputs.key_mask, inputs.positions, inputs.nominal_length};
  const QueryRows rows = group_rows(inputs.rows, batch, length);
  return hidden({}, inputs, planner, [&](std::int64_t index, const Variable& x) {
    if (index == config_.layers) return;
    const AttentionPlan plan = planner.plan(index, layout);
    visit(index, layers_[static_cast<std::size_t>(index)].attention_inputs(x, inputs.key_mask, plan, rows), plan);
  });
}

std::vector<Tensor> Model::attention(const ModelInputs& inputs, Planner& planner) const {
  const std::int64_t length = inputs.ids.dim(1);
  std::vector<Tensor> weights;
  ModelInputs all_rows = inputs;
  all_rows.rows = {};
  visit_attention(all_rows, planner, [&](std::int64_t, const AttentionInputs& in, const AttentionPlan& plan) {
    weights.push_back(Tensor::empty({inputs.ids.dim(0), length, length}, dtype_));
    kernels::attention_weights(in, plan, weights.back());
  });
  return weights;
}

}  // namespace gau
