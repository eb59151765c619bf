#include "layers/gau_layer.h"

#include <array>

#include "autograd/attention_values.h"
#include "autograd/composed.h"
#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/method.h"
#include "layers/parameter_names.h"
#include "layers/shared_rows.h"

namespace gau {

namespace {
std::string layer_name(std::int64_t index) { return fmt::format("{}{}.gau.", parameter_names::kLayer, index); }
}  // namespace

void GauLayer::add_parameters(FlatParameters& parameters, const ModelConfig& config, std::int64_t index) {
  const std::string name = layer_name(index);
  parameters.add(name + "i_dense.weight", {2 * config.intermediate + config.key_size, config.hidden});
  parameters.add(name + "o_dense.weight", {config.hidden, config.intermediate});
  parameters.add(name + "q_scaleoffset.weight", {config.key_size});
  parameters.add(name + "k_scaleoffset.weight", {config.key_size});
  if (config.attention.learn_scale) parameters.add(name + "cosine_scale", {1});
  if (parse_law(config.attention.law).kind == LawKind::kSsmax) parameters.add(name + "ssmax_scale", {1});
}

GauLayer::GauLayer(const FlatParameters& parameters, const ModelConfig& config, std::int64_t index)
    : config_(config), index_(index) {
  const std::string name = layer_name(index);
  input_ = parameters.find(name + "i_dense.weight").variable;
  output_ = parameters.find(name + "o_dense.weight").variable;
  gamma_q_ = parameters.find(name + "q_scaleoffset.weight").variable;
  gamma_k_ = parameters.find(name + "k_scaleoffset.weight").variable;
  if (parameters.contains(name + "cosine_scale")) scale_ = parameters.find(name + "cosine_scale").variable;
  if (parameters.contains(name + "ssmax_scale")) ssmax_ = parameters.find(name + "ssmax_scale").variable;
}

// What attention needs: gate u at the wanted rows, and the inputs of attention under every region's rotation.
struct GauLayer::Projected {
  Variable gate;
  ops::AttentionVariables attention;
};

GauLayer::Projected GauLayer::project(const Context& context, const Variable& x, const Tensor& key_mask,
                                      const AttentionPlan& plan, const QueryRows& rows) const {
  const std::int64_t batch = x.dim(0), length = x.dim(1), e = config_.intermediate, d = config_.key_size;
  const auto swish = context.composed ? composed::swish_split : ops::swish_split;

  Projected p;
  Variable v, z;
  if (rows.all()) {
    const auto parts = swish(ops::linear(x, input_), e, e, d);
    p.gate = parts[0];
    v = parts[1];
    z = parts[2];
  } else {
    // Keys and values of all tokens, gate and queries of the wanted ones.
    const auto parts = swish(ops::linear(x, ops::slice_rows(input_, e, 2 * e + d)), 0, e, d);
    v = parts[1];
    z = parts[2];
    p.gate = swish(ops::linear(pick(x, rows), ops::slice_rows(input_, 0, e)), e, 0, 0)[0];
  }

  HeadTransform keys, queries;
  keys.normalize = config_.attention.kind != AttentionKind::kDot;
  queries.normalize = config_.attention.kind == AttentionKind::kCosine;
  queries.factor = row_factors(plan, rows);
  queries.positions = rows.positions;
  if (rows.shared) keys.positions = rows.shared->positions();
  keys.tables = {plan.near.k};
  queries.tables = {plan.near.q};
  if (plan.has_far()) {
    keys.tables.insert(keys.tables.end(), {plan.left.k, plan.right.k});
    queries.tables.insert(queries.tables.end(), {plan.left.q, plan.right.q});
  }
  const Variable asking = rows.all() ? z : pick_grouped(z, rows);
  const std::vector<Variable> k = head(context, ops::reshape(z, {batch, length, d}), gamma_k_, {}, keys);
  const std::vector<Variable> q =
      head(context, ops::reshape(asking, {batch, asking.value().rows() / batch, d}), gamma_q_, learned_scales(), queries);

  ops::AttentionVariables& a = p.attention;
  a.q_near = q[0];
  a.k_near = k[0];
  if (plan.has_far()) {
    a.q_left = q[1];
    a.k_left = k[1];
    a.q_right = q[2];
    a.k_right = k[2];
  }
  a.v = ops::reshape(v, {batch, length, e});
  a.key_mask = key_mask;
  a.rows = rows.positions;
  return p;
}

std::vector<Variable> GauLayer::learned_scales() const {
  std::vector<Variable> scales;
  if (scale_.defined()) scales.push_back(scale_);
  if (ssmax_.defined()) scales.push_back(ssmax_);
  return scales;
}

std::vector<Variable> GauLayer::head(const Context& context, const Variable& z, const Variable& gamma,
                                     const std::vector<Variable>& scales, const HeadTransform& how) {
  if (context.composed || !scales.empty()) return composed::head_rows(z, gamma, scales, how);
  return ops::head_rows(z, gamma, how);
}

Variable GauLayer::pick(const Variable& x, const QueryRows& rows) const {
  if (rows.shared) return ops::move_rows(x, rows.moves, rows.shared->sequence(index_));
  return ops::gather_rows(x, rows.flat);
}

Variable GauLayer::pick_grouped(const Variable& x, const QueryRows& rows) const {
  return rows.shared ? ops::gather_rows(pick(x, rows), rows.group) : ops::gather_rows(x, rows.grouped);
}

Tensor GauLayer::row_factors(const AttentionPlan& plan, const QueryRows& rows) {
  if (!rows.grouped.defined() || !plan.row_factor.defined()) return plan.row_factor;
  const Tensor column = plan.row_factor.reshaped({plan.row_factor.size(), 1});
  Tensor picked = Tensor::empty({rows.grouped.size(), 1}, column.dtype());
  kernels::gather_rows(column, rows.grouped, picked);
  return picked.reshaped({rows.grouped.size()});
}

Variable GauLayer::forward(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                           const QueryRows& rows) const {
  const std::int64_t length = rows.shared ? rows.shared->length() : x.dim(1), e = config_.intermediate;
  const auto norm = context.composed ? composed::residual_rms_norm : ops::residual_rms_norm;

  const Projected p = project(context, x, key_mask, plan, rows);
  const DropoutSpec dropout = context.dropout(config_.attention_dropout, Site::kAttentionDropout, index_, length);
  Variable av = attend(context, p.attention, plan, dropout, rows);
  av = ops::reshape(av, {av.value().rows(), e});
  if (!rows.all()) av = ops::gather_rows(av, rows.ungroup);
  const Variable out = ops::linear(ops::multiply(p.gate, av), output_);
  const Variable residual = rows.all() ? x : pick(x, rows);
  return norm(residual, rows.all() ? ops::reshape(out, x.shape()) : out,
              context.dropout(config_.dropout, Site::kHiddenDropout, index_, length, rows.flat), config_.norm_eps);
}

Variable GauLayer::attend(const Context& context, const ops::AttentionVariables& in, const AttentionPlan& plan,
                          const DropoutSpec& dropout, const QueryRows& rows) const {
  if (rows.shared) return ops::shared_attention(in, plan, dropout, rows.shared->sequence(index_), rows.queries);
  return context.composed ? composed::attention(in, plan, dropout) : ops::attention(in, plan, dropout);
}

AttentionInputs GauLayer::attention_inputs(const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                                           const QueryRows& rows) const {
  NoGrad no_grad;
  const ops::AttentionVariables a = project({}, x, key_mask, plan, rows).attention;
  AttentionInputs in = ops::values_of(a);
  if (!rows.shared) return in;
  in.v = {};
  return ops::gathered(in, rows.shared->sequence(index_));
}

}  // namespace gau
