// Plans of a batch: geometry by length, kept between calls, and the factor of each row.
#include "layers/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/error.h"
#include "layers/attention_geometry.h"
#include "layers/temperature.h"

namespace gau {
namespace {

// Geometries kept; one length has at most two, and evaluation goes through its lengths one after another.
constexpr std::size_t kKeptGeometries = 8;

std::int64_t nominal_length(const BatchLayout& layout) {
  return layout.nominal_length > 0 ? layout.nominal_length : layout.length;
}

void check_layout(const BatchLayout& layout) {
  const Shape expected{layout.batch, layout.length};
  check(layout.batch >= 1 && layout.length >= 1, ExitCode::kData, "a plan for a batch of {}", expected.str());
  check(!layout.key_mask.defined() || layout.key_mask.shape() == expected, ExitCode::kData, "key_mask {} for a batch of {}",
        layout.key_mask.shape().str(), expected.str());
  check(!layout.positions.defined() || layout.positions.shape() == expected, ExitCode::kData, "positions {} for a batch of {}",
        layout.positions.shape().str(), expected.str());
}

// Number of valid keys before each position of sequence b: L + 1 values.
std::vector<std::int64_t> valid_before(const BatchLayout& layout, std::int64_t b) {
  std::vector<std::int64_t> before(static_cast<std::size_t>(layout.length) + 1, 0);
  const std::int32_t* mask = layout.key_mask.defined() ? layout.key_mask.data<std::int32_t>() + b * layout.length : nullptr;
  for (std::size_t j = 0; j + 1 < before.size(); ++j) before[j + 1] = before[j] + (mask == nullptr || mask[j] != 0 ? 1 : 0);
  return before;
}

// Valid keys that row i sees, from the counts before each position.
std::int64_t keys_of_row(const AttentionPlan& plan, std::int64_t length, std::int64_t i,
                         const std::vector<std::int64_t>& before) {
  const auto between = [&](std::int64_t first, std::int64_t last) {
    return first < last ? before[static_cast<std::size_t>(last)] - before[static_cast<std::size_t>(first)] : 0;
  };
  std::int64_t first = 0;
  std::int64_t last = length;
  if (i >= plan.rows && plan.window < length) {
    first = std::max<std::int64_t>(0, i - plan.window);
    last = std::min(length, i + plan.window + 1);
  }
  const std::int64_t sinks = std::min(plan.sinks, length);
  std::int64_t keys = between(first, last) + between(0, std::min(sinks, first)) + between(last, sinks);
  if (plan.mask_diagonal) keys -= between(i, i + 1);
  return keys;
}

bool takes_own_positions(PositionKind kind) {
  switch (kind) {
    case PositionKind::kAlibi:
    case PositionKind::kRerope:
    case PositionKind::kLeakyRerope:
    case PositionKind::kStreaming:
    case PositionKind::kLmInfinite:
      return false;
    default:
      return true;
  }
}

template <class T>
Tensor scaled(const std::vector<double>& factors, double base, const Shape& shape) {
  Tensor out = Tensor::empty(shape, DTypeOf<T>::value);
  std::transform(factors.begin(), factors.end(), out.data<T>(),
                 [base](double factor) { return static_cast<T>(base * factor); });
  return out;
}

}  // namespace

Planner::Planner(const ModelConfig& model, const Method& method, DType dtype)
    : model_(model), method_(resolve(method, model)), dtype_(dtype), skip_(AttentionPlan::default_skip(dtype)) {
  check(dtype == DType::kF32 || dtype == DType::kF64, ExitCode::kUsage, "rotary tables are f32 or f64, not {}", name_of(dtype));
}

AttentionPlan Planner::plan(std::int64_t layer, const BatchLayout& layout, double cosine_scale) {
  check_layout(layout);
  AttentionPlan plan = geometry(layer, layout);
  plan.skip = skip_;
  if (layout.positions.defined() && plan.near.q.defined()) {
    check(takes_own_positions(method_.position->kind) && !plan.has_far(), ExitCode::kUsage,
          "method '{}' cannot be used with positions of each sample's own", method_.name);
    plan.near.q = own_table(layer, layout);
    plan.near.k = plan.near.q;
  }
  const std::vector<double> factors = law_factors(layer, layout, plan);
  const double base = base_scale(cosine_scale);
  const Shape shape{layout.batch, layout.length};
  plan.row_factor = dtype_ == DType::kF64 ? scaled<double>(factors, base, shape) : scaled<float>(factors, base, shape);

  const AttentionConfig& attention = model_.attention;
  const bool bounded = attention.kind == AttentionKind::kCosine && !attention.learn_scale && !plan.has_bias() &&
                       !plan.has_distance_law() && method_.law->kind != LawKind::kSsmax;
  if (bounded) {
    const double magnitude = method_spectrum({model_, method_, layer, layout.length, nominal_length(layout), dtype_}).magnitude;
    plan.logit_bound = base * magnitude * magnitude * *std::max_element(factors.begin(), factors.end());
  }
  return plan;
}

Tensor Planner::visible_keys(const AttentionPlan& plan, const BatchLayout& layout) {
  check_layout(layout);
  Tensor keys = Tensor::empty({layout.batch, layout.length}, DType::kF64);
  double* out = keys.data<double>();
  for (std::int64_t b = 0; b < layout.batch; ++b) {
    const std::vector<std::int64_t> before = valid_before(layout, b);
    for (std::int64_t i = 0; i < layout.length; ++i) *out++ = static_cast<double>(keys_of_row(plan, layout.length, i, before));
  }
  return keys;
}

const AttentionPlan& Planner::geometry(std::int64_t layer, const BatchLayout& layout) {
  check(layer >= 0 && layer < model_.layers, ExitCode::kUsage, "a plan for layer {} of {}", layer, model_.layers);
  const std::int64_t nominal = nominal_length(layout);
  const std::array<std::int64_t, 3> key = {is_windowed_layer(model_, method_, layer) ? 1 : 0, layout.length, nominal};
  auto found = geometries_.find(key);
  if (found == geometries_.end()) {
    if (geometries_.size() >= kKeptGeometries) geometries_.clear();
    found = geometries_.emplace(key, attention_geometry({model_, method_, layer, layout.length, nominal, dtype_})).first;
  }
  return found->second;
}

const RotaryTable& Planner::own_table(std::int64_t layer, const BatchLayout& layout) {
  const std::span<const double> positions = std::as_const(layout.positions).span<double>();
  const std::int64_t nominal = nominal_length(layout);
  const Shape shape{layout.batch, layout.length};
  const bool same = own_table_.defined() && own_nominal_ == nominal && own_table_.cos.dim(0) == layout.batch &&
                    own_table_.cos.dim(1) == layout.length &&
                    std::equal(positions.begin(), positions.end(), own_positions_.begin(), own_positions_.end());
  if (!same) {
    own_table_ =
        rotary_table(positions, shape, method_spectrum({model_, method_, layer, layout.length, nominal, dtype_}), dtype_);
    own_positions_.assign(positions.begin(), positions.end());
    own_nominal_ = nominal;
  }
  return own_table_;
}

double Planner::base_scale(double cosine_scale) const {
  const AttentionConfig& attention = model_.attention;
  switch (attention.kind) {
    case AttentionKind::kDot:
      return 1 / std::sqrt(static_cast<double>(model_.key_size));
    case AttentionKind::kKeyNorm:
      return 1;
    case AttentionKind::kCosine:
      if (attention.learn_scale) return 1;
      if (cosine_scale > 0) return cosine_scale;
      return method_.cosine_scale.value_or(attention.scale);
  }
  return 1;
}

double Planner::calibrated_factor(std::int64_t layer, std::int64_t nominal) const {
  // Factors are relative to what the layer was trained with, where its own law need not be 1.
  const std::int64_t train = model_.attention.train_length;
  const bool windowed = is_windowed_layer(model_, method_, layer);
  const double trained = windowed ? 1 : temperature(model_law(model_), train, train, model_.key_size);
  if (nominal <= train) return trained;
  std::string fitted;
  for (const Calibration& entry : model_.attention.calibration) {
    if (entry.length == nominal) return trained * entry.factors.at(static_cast<std::size_t>(layer));
    fitted += fmt::format(" {}", entry.length);
  }
  fail(ExitCode::kUsage, "method '{}': no factors were fitted for length {}; fitted lengths:{}", method_.name, nominal, fitted);
}

std::vector<double> Planner::law_factors(std::int64_t layer, const BatchLayout& layout, const AttentionPlan& plan) {
  const LawTerm& law = *method_.law;
  std::vector<double> factors(static_cast<std::size_t>(layout.batch * layout.length), 1.0);
  if (law.kind == LawKind::kCalibrated) {
    std::fill(factors.begin(), factors.end(), calibrated_factor(layer, nominal_length(layout)));
  }
  const bool by_keys = law.kind == LawKind::kSoftmaxPlus || law.kind == LawKind::kInfoScale || law.kind == LawKind::kLogN;
  // The learned factor of ssmax is in every layer, and so must be ln l.
  if (!(by_keys && !is_windowed_layer(model_, method_, layer)) && law.kind != LawKind::kSsmax) return factors;
  const auto count = law.words.find("count");
  const bool all_valid = count != law.words.end() && count->second == "valid";
  const Tensor keys = visible_keys(all_valid ? AttentionPlan{} : plan, layout);
  const std::span<const double> values = keys.span<double>();
  temperatures_.resize(std::max(temperatures_.size(), static_cast<std::size_t>(layout.length) + 1),
                       std::numeric_limits<double>::quiet_NaN());
  for (std::size_t row = 0; row < factors.size(); ++row) {
    double& known = temperatures_[static_cast<std::size_t>(values[row])];
    if (std::isnan(known)) {
      known = temperature(law, static_cast<std::int64_t>(values[row]), model_.attention.train_length, model_.key_size);
    }
    factors[row] = known;
  }
  return factors;
}

}  // namespace gau
