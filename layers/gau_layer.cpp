#include "layers/gau_layer.h"

#include <algorithm>
#include <array>

#include "autograd/composed.h"
#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/method.h"

namespace gau {

QueryRows group_rows(const Tensor& flat, std::int64_t batch, std::int64_t length) {
  QueryRows rows;
  rows.flat = flat;
  if (!flat.defined()) return rows;
  const auto wanted = flat.span<std::int32_t>();
  std::vector<std::int64_t> count(static_cast<std::size_t>(batch), 0);
  std::int64_t before = -1;
  for (const std::int32_t row : wanted) {
    if (row < 0) continue;
    check(row > before && row < batch * length, ExitCode::kData, "model: rows must ascend within [0, {}), but {} follows {}",
          batch * length, row, before);
    before = row;
    ++count[static_cast<std::size_t>(row / length)];
  }
  const std::int64_t most = *std::max_element(count.begin(), count.end());
  const std::int64_t width = std::min(length, std::max<std::int64_t>(8, (most + 7) / 8 * 8));
  rows.grouped = Tensor::empty({batch * width}, DType::kI32);
  rows.positions = Tensor::empty({batch, width}, DType::kI32);
  rows.ungroup = Tensor::empty({flat.size()}, DType::kI32);
  std::int32_t* grouped = rows.grouped.data<std::int32_t>();
  std::int32_t* positions = rows.positions.data<std::int32_t>();
  std::int32_t* ungroup = rows.ungroup.data<std::int32_t>();
  std::fill(grouped, grouped + batch * width, -1);
  std::fill(positions, positions + batch * width, -1);
  std::fill(count.begin(), count.end(), 0);
  for (std::size_t m = 0; m < wanted.size(); ++m) {
    ungroup[m] = -1;
    if (wanted[m] < 0) continue;
    const std::int64_t b = wanted[m] / length;
    const std::int64_t at = b * width + count[static_cast<std::size_t>(b)]++;
    grouped[at] = wanted[m];
    positions[at] = static_cast<std::int32_t>(wanted[m] % length);
    ungroup[m] = static_cast<std::int32_t>(at);
  }
  return rows;
}

namespace {
std::string layer_name(std::int64_t index) { return fmt::format("gau_alpha.encoder.layer.{}.gau.", index); }
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
    p.gate = swish(ops::linear(ops::gather_rows(x, rows.flat), ops::slice_rows(input_, 0, e)), e, 0, 0)[0];
  }

  HeadTransform keys, queries;
  keys.normalize = config_.attention.kind != AttentionKind::kDot;
  queries.normalize = config_.attention.kind == AttentionKind::kCosine;
  queries.factor = row_factors(plan, rows);
  queries.positions = rows.positions;
  keys.tables = {plan.near.k};
  queries.tables = {plan.near.q};
  if (plan.has_far()) {
    keys.tables.insert(keys.tables.end(), {plan.left.k, plan.right.k});
    queries.tables.insert(queries.tables.end(), {plan.left.q, plan.right.q});
  }
  const Variable asking = rows.all() ? z : ops::gather_rows(z, rows.grouped);
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

Tensor GauLayer::row_factors(const AttentionPlan& plan, const QueryRows& rows) {
  if (rows.all() || !plan.row_factor.defined()) return plan.row_factor;
  const Tensor column = plan.row_factor.reshaped({plan.row_factor.size(), 1});
  Tensor picked = Tensor::empty({rows.grouped.size(), 1}, column.dtype());
  kernels::gather_rows(column, rows.grouped, picked);
  return picked.reshaped({rows.grouped.size()});
}

Variable GauLayer::forward(const Context& context, const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                           const QueryRows& rows) const {
  const std::int64_t length = x.dim(1), e = config_.intermediate;
  const auto attend = context.composed ? composed::attention : ops::attention;
  const auto norm = context.composed ? composed::residual_rms_norm : ops::residual_rms_norm;

  const Projected p = project(context, x, key_mask, plan, rows);
  Variable av = attend(p.attention, plan, context.dropout(config_.attention_dropout, Site::kAttentionDropout, index_, length));
  av = ops::reshape(av, {av.value().rows(), e});
  if (!rows.all()) av = ops::gather_rows(av, rows.ungroup);
  const Variable out = ops::linear(ops::multiply(p.gate, av), output_);
  const Variable residual = rows.all() ? x : ops::gather_rows(x, rows.flat);
  return norm(residual, rows.all() ? ops::reshape(out, x.shape()) : out,
              context.dropout(config_.dropout, Site::kHiddenDropout, index_, length, rows.flat), config_.norm_eps);
}

AttentionInputs GauLayer::attention_inputs(const Variable& x, const Tensor& key_mask, const AttentionPlan& plan,
                                           const QueryRows& rows) const {
  NoGrad no_grad;
  const ops::AttentionVariables a = project({}, x, key_mask, plan, rows).attention;
  const auto value = [](const Variable& y) { return y.defined() ? y.value() : Tensor(); };
  return {value(a.q_near),  value(a.k_near), value(a.q_left), value(a.k_left), value(a.q_right),
          value(a.k_right), value(a.v),      a.key_mask,      a.rows};
}

}  // namespace gau
