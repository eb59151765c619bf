#include "layers/model.h"

#include <cmath>

#include "autograd/composed.h"
#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/initializer.h"
#include "layers/parameter_names.h"
#include "layers/shared_rows.h"

namespace gau {

namespace {
using namespace parameter_names;

void check_ids(const Tensor& ids, std::int64_t limit, const char* what) {
  const auto values = ids.span<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= 0 && values[i] < limit, ExitCode::kData, "{}: value {} at row {}, column {} is not in [0, {})", what,
          values[i], static_cast<std::int64_t>(i) / ids.columns(), static_cast<std::int64_t>(i) % ids.columns(), limit);
  }
}

// Labels of the rows that this rank has; a row of padding has none.
Tensor pick_labels(const Tensor& labels, const QueryRows& rows) {
  std::vector<std::int32_t> picked(static_cast<std::size_t>(rows.flat.size()), -1);
  for (std::size_t m = 0; m < rows.mine.size(); ++m) picked[m] = labels.data<std::int32_t>()[rows.mine[m]];
  return Tensor::from(picked, {rows.flat.size()});
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

// A batch as the layers take it: with ranks that share sequences, this rank's rows of it.
struct Model::Batch {
  const ModelInputs& inputs;
  std::unique_ptr<SharedRows> shared;
  Tensor ids, types;
  QueryRows rows, wanted;  // of all layers but the last, and of the last
  std::int64_t length = 0;
};

Model::Batch Model::batch_of(const Context& context, const ModelInputs& inputs) const {
  check(inputs.ids.defined() && inputs.ids.shape().rank() == 2, ExitCode::kData, "model: input_ids must be [batch, length]");
  check_ids(inputs.ids, config_.vocab_size, "input_ids");
  if (inputs.types.defined()) check_ids(inputs.types, config_.type_vocab_size, "type_ids");
  const std::int64_t batch = inputs.ids.dim(0), length = inputs.ids.dim(1);
  if (!context.group.shared()) {
    return {inputs, nullptr, inputs.ids, inputs.types, {}, group_rows(inputs.rows, batch, length), length};
  }
  auto shared = std::make_unique<SharedRows>(context.group, batch, length, static_cast<std::int64_t>(context.step));
  const Tensor ids = shared->own(inputs.ids), types = shared->own(inputs.types);
  const QueryRows rows = shared->all(), wanted = shared->wanted(inputs.rows);
  return {inputs, std::move(shared), ids, types, rows, wanted, length};
}

Variable Model::hidden(const Context& context, const ModelInputs& inputs, Planner& planner, const Observer& observer) const {
  return run(context, batch_of(context, inputs), planner, observer);
}

Variable Model::run(const Context& context, const Batch& batch, Planner& planner, const Observer& observer) const {
  const auto norm = context.composed ? composed::residual_rms_norm : ops::residual_rms_norm;
  const Tensor& key_mask = batch.inputs.key_mask;
  Variable x = ops::embed(word_, type_, batch.ids, batch.types, config_.pad_id);
  x = norm({}, x, context.dropout(config_.dropout, Site::kEmbeddingDropout, 0, batch.length, batch.rows.flat),
           config_.norm_eps);
  if (observer) observer(0, x);

  const BatchLayout layout{batch.inputs.ids.dim(0), batch.length, key_mask, batch.inputs.positions,
                           batch.inputs.nominal_length};
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const AttentionPlan plan = planner.plan(i, layout, context.cosine_scale);
    const QueryRows& rows = i + 1 == config_.layers ? batch.wanted : batch.rows;
    x = layers_[static_cast<std::size_t>(i)].forward(context, x, key_mask, plan, rows);
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
  const Batch batch = batch_of(context, inputs);
  const Variable x = run(context, batch, planner, {});
  const Variable scores = logits(context, x, batch.length, batch.wanted.flat);
  const ops::CrossEntropy loss = ops::cross_entropy(scores, batch.shared ? pick_labels(labels, batch.wanted) : labels);
  MaskedLoss result{loss.sum, loss.row_loss, loss.predicted};
  if (batch.shared) {
    result.row_loss = batch.shared->by_row<double>(batch.wanted, loss.row_loss, labels.size());
    result.predicted = batch.shared->by_row<std::int32_t>(batch.wanted, loss.predicted, labels.size());
    result.sum = ops::shared_sum(loss.sum, kernels::sum(result.row_loss));
  }
  const auto label = labels.span<std::int32_t>();
  const auto predicted = std::as_const(result.predicted).span<std::int32_t>();
  for (std::size_t m = 0; m < label.size(); ++m) {
    if (label[m] < 0) continue;
    ++result.count;
    result.correct += predicted[m] == label[m];
  }
  return result;
}

Variable Model::visit_attention(const ModelInputs& inputs, Planner& planner, const AttentionVisitor& visit,
                                const RankGroup& group) const {
  NoGrad no_grad;
  Context context;
  context.group = group;
  const Batch batch = batch_of(context, inputs);
  const BatchLayout layout{inputs.ids.dim(0), batch.length, inputs.key_mask, inputs.positions, inputs.nominal_length};
  return run(context, batch, planner, [&](std::int64_t index, const Variable& x) {
    if (index == config_.layers) return;
    const AttentionPlan plan = planner.plan(index, layout);
    visit(index, layers_[static_cast<std::size_t>(index)].attention_inputs(x, inputs.key_mask, plan, batch.wanted), plan);
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
