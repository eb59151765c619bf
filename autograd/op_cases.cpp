#include "autograd/op_cases.h"

#include <cmath>
#include <numbers>

#include "autograd/composed.h"
#include "autograd/ops.h"
#include "framework/error.h"

namespace gau {

namespace {

using Inputs = const std::vector<Variable>&;

Tensor ids(std::vector<std::int32_t> values, const Shape& shape) { return Tensor::from(values, shape); }

// Angles that differ by pair and position, with a magnitude other than 1 as YaRN has.
RotaryTable rotary(std::int64_t positions, std::int64_t pairs, DType dtype, double magnitude = 1, double offset = 0) {
  std::vector<double> cos, sin;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle =
          (static_cast<double>(p) + offset) * std::pow(10.0, -static_cast<double>(i) / static_cast<double>(pairs));
      cos.push_back(magnitude * std::cos(angle));
      sin.push_back(magnitude * std::sin(angle));
    }
  }
  return {Tensor::from(cos, {positions, pairs}).to(dtype), Tensor::from(sin, {positions, pairs}).to(dtype)};
}

DropoutSpec dropout_spec(double rate, std::int64_t length) {
  DropoutSpec spec;
  spec.rate = rate;
  spec.key = {11, 3, Site::kHiddenDropout, 1};
  spec.first_sample = 5;
  spec.length = length;
  return spec;
}

std::vector<Variable> present(const std::array<Variable, 3>& parts) {
  std::vector<Variable> result;
  for (const Variable& part : parts) {
    if (part.defined()) result.push_back(part);
  }
  return result;
}

struct AttentionCase {
  std::string name;
  AttentionPlan plan;
  double dropout = 0;
  bool padding = false;
  bool rows = false;
  bool empty_sequence = false;
};

// B = 2, L = 9 (or 5 rows of it), D = 4, E = 6.
OpCase attention_case(const AttentionCase& c) {
  constexpr std::int64_t kBatch = 2, kLength = 9, kRows = 5, kKey = 4, kValue = 6;
  const auto variables = [c](Inputs in) {
    ops::AttentionVariables a;
    a.q_near = in[0];
    a.k_near = in[1];
    a.v = in[2];
    if (c.plan.has_far()) {
      a.q_left = in[3];
      a.k_left = in[4];
      a.q_right = in[5];
      a.k_right = in[6];
    }
    if (c.padding) a.key_mask = ids({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0}, {kBatch, kLength});
    if (c.empty_sequence) a.key_mask = ids({1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {kBatch, kLength});
    if (c.rows) a.rows = ids({0, 3, 4, 8, -1, 2, 7, -1, -1, -1}, {kBatch, kRows});
    return a;
  };
  const DropoutSpec spec = dropout_spec(c.dropout, kLength);
  const Shape q{kBatch, c.rows ? kRows : kLength, kKey}, k{kBatch, kLength, kKey}, v{kBatch, kLength, kValue};
  OpCase result;
  result.name = "attention, " + c.name;
  result.inputs = {q, k, v};
  if (c.plan.has_far()) result.inputs.insert(result.inputs.end(), {q, k, q, k});
  result.fused = [=](Inputs in) { return std::vector<Variable>{ops::attention(variables(in), c.plan, spec)}; };
  result.composed = [=](Inputs in) { return std::vector<Variable>{composed::attention(variables(in), c.plan, spec)}; };
  return result;
}

std::vector<OpCase> attention_cases() {
  AttentionPlan full, window, sinks, far, bias, diagonal, distance, everything;
  window.window = 2;
  sinks.window = 2;
  sinks.sinks = 2;
  sinks.rows = 1;
  far.near_limit = 3;
  bias.slope_left = 0.5;
  bias.slope_right = 0.25;
  diagonal.mask_diagonal = true;
  distance.near_limit = 5;
  distance.distance_scale = {1, 1.25, 1.5, 1.625, 1.75, 1.875, 2, 2.0625, 2.125};
  distance.distance_shift = {0, -0.25, -0.5, -0.75, -0.875, -1, -1.125, -1.25, -1.375};
  everything.window = 4;
  everything.sinks = 1;
  everything.near_limit = 3;
  everything.slope_left = 0.125;
  std::vector<OpCase> cases;
  for (const AttentionCase& c : std::vector<AttentionCase>{
           {"full", full},
           {"full, dropout", full, 0.3},
           {"padding", full, 0, true},
           {"a sequence without tokens", full, 0, false, false, true},
           {"window", window},
           {"window, padding", window, 0, true},
           {"sinks and rows", sinks},
           {"far regions", far},
           {"bias", bias},
           {"diagonal masked", diagonal},
           {"some rows", full, 0, false, true},
           {"law of the distance", distance, 0, true, true},
           {"all at once", everything, 0.2, true, true},
       }) {
    cases.push_back(attention_case(c));
  }
  return cases;
}

std::vector<OpCase> small_cases() {
  const auto one = [](Variable x) { return std::vector<Variable>{std::move(x)}; };
  const Tensor some_rows = ids({4, 0, -1, 2}, {4});
  return {
      {"linear", {{3, 5, 4}, {6, 4}}, [=](Inputs in) { return one(ops::linear(in[0], in[1])); }, {}, 1},
      {"batched_matmul",
       {{2, 3, 4}, {2, 4, 5}},
       [=](Inputs in) { return one(ops::batched_matmul(in[0], in[1], false)); },
       {},
       1},
      {"batched_matmul, transposed",
       {{2, 3, 4}, {2, 5, 4}},
       [=](Inputs in) { return one(ops::batched_matmul(in[0], in[1], true)); },
       {},
       1},
      {"add", {{3, 4}, {3, 4}}, [=](Inputs in) { return one(ops::add(in[0], ops::add(in[0], in[1]))); }, {}, 1},
      {"multiply", {{3, 4}, {3, 4}}, [=](Inputs in) { return one(ops::multiply(in[0], in[1])); }, {}, 1},
      {"reshape and slice_rows",
       {{6, 4}},
       [=](Inputs in) {
         return one(ops::slice_rows(ops::reshape(in[0], {8, 3}), 2, 5));
       },
       {},
       1},
      {"gather_rows", {{5, 3}}, [=](Inputs in) { return one(ops::gather_rows(in[0], some_rows)); }, {}, 1},
      {"scale_columns", {{2, 5, 3}, {3}}, [=](Inputs in) { return one(ops::scale_columns(in[0], in[1])); }, {}, 1},
      {"scale_rows",
       {{4, 3}},
       [=](Inputs in) { return one(ops::scale_rows(in[0], random_tensor({4}, in[0].dtype(), 77))); },
       {},
       1},
      {"scale_by", {{4, 3}, {1}}, [=](Inputs in) { return one(ops::scale_by(in[0], in[1])); }, {}, 1},
      {"dropout", {{6, 11}}, [=](Inputs in) { return one(ops::dropout(in[0], dropout_spec(0.4, 3))); }, {}, 1},
      {"embed",
       {{7, 5}, {2, 5}},
       [=](Inputs in) {
         return one(ops::embed(in[0], in[1], ids({1, 6, 3, 3, 1, 2}, {2, 3}), ids({0, 1, 1, 0, 0, 0}, {2, 3}), 0));
       },
       {},
       1},
  };
}

OpCase head_case(const std::string& name, bool normalize, const std::vector<RotaryTable>& tables, bool factor,
                 const Tensor& positions) {
  const auto transform = [=](DType dtype) {
    HeadTransform how;
    how.normalize = normalize;
    how.positions = positions;
    if (factor) how.factor = random_tensor({10}, dtype, 78);
    for (const RotaryTable& table : tables) {
      how.tables.push_back(table.defined() ? RotaryTable{table.cos.to(dtype), table.sin.to(dtype)} : table);
    }
    return how;
  };
  return {name,
          {{2, 5, 6}, {6}},
          [=](Inputs in) { return ops::head_rows(in[0], in[1], transform(in[0].dtype())); },
          [=](Inputs in) { return composed::head_rows(in[0], in[1], {}, transform(in[0].dtype())); },
          1};
}

std::vector<OpCase> fused_cases() {
  const auto one = [](Variable x) { return std::vector<Variable>{std::move(x)}; };
  const Tensor labels = ids({2, -1, 0, 6}, {4});
  return {
      {"swish_split",
       {{5, 10}},
       [](Inputs in) { return present(ops::swish_split(in[0], 4, 3, 3)); },
       [](Inputs in) { return present(composed::swish_split(in[0], 4, 3, 3)); },
       3},
      {"swish_split, two parts",
       {{5, 7}},
       [](Inputs in) { return present(ops::swish_split(in[0], 0, 4, 3)); },
       [](Inputs in) { return present(composed::swish_split(in[0], 0, 4, 3)); },
       3},
      {"normalize_rows",
       {{6, 5}},
       [=](Inputs in) { return one(ops::normalize_rows(in[0])); },
       [=](Inputs in) { return one(composed::normalize_rows(in[0])); },
       1},
      {"rotate", {{2, 5, 6}}, [=](Inputs in) { return one(ops::rotate(in[0], rotary(5, 3, in[0].dtype(), 1.25), {})); }, {}, 1},
      {"rotate at positions",
       {{2, 3, 6}},
       [=](Inputs in) {
         return one(ops::rotate(in[0], rotary(9, 3, in[0].dtype()), ids({0, 8, 2, 5, 1, -1}, {2, 3})));
       },
       {},
       1},
      {"rotate by one angle",
       {{2, 5, 6}},
       [=](Inputs in) { return one(ops::rotate(in[0], rotary(1, 3, in[0].dtype(), 1, 7), {})); },
       {},
       1},
      head_case("head_rows, keys", false, {rotary(5, 3, DType::kF64, 1.25)}, false, {}),
      head_case("head_rows, normalised queries", true, {rotary(5, 3, DType::kF64, 1.25), {}, rotary(1, 3, DType::kF64, 1, 7)},
                true, {}),
      head_case("head_rows at positions", true, {rotary(9, 3, DType::kF64)}, true,
                ids({0, 8, 2, 5, 1, -1, 3, 3, 0, 7}, {2, 5})),
      {"residual_rms_norm",
       {{4, 3, 7}, {4, 3, 7}},
       [=](Inputs in) { return one(ops::residual_rms_norm(in[0], in[1], dropout_spec(0.25, 3), 1e-12)); },
       [=](Inputs in) { return one(composed::residual_rms_norm(in[0], in[1], dropout_spec(0.25, 3), 1e-12)); },
       1},
      {"residual_rms_norm without residual",
       {{5, 7}},
       [=](Inputs in) { return one(ops::residual_rms_norm({}, in[0], {}, 1e-3)); },
       [=](Inputs in) { return one(composed::residual_rms_norm({}, in[0], {}, 1e-3)); },
       1},
      {"cross_entropy",
       {{4, 7}},
       [=](Inputs in) { return one(ops::cross_entropy(in[0], labels).sum); },
       [=](Inputs in) { return one(composed::cross_entropy(in[0], labels)); },
       2},
  };
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all = small_cases();
    for (auto more : {fused_cases(), attention_cases()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return cases;
}

Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed, double spread) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  const RandomKey key{seed, 0, Site::kSynthetic, 0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = key.draw(static_cast<std::uint32_t>(i), 0, 0);
    values[i] = spread * std::sqrt(-2 * std::log((bits[0] + 1.0) / 4294967296.0)) *
                std::cos(2 * std::numbers::pi * bits[1] / 4294967296.0);
  }
  return Tensor::from(values, shape).to(dtype);
}

Variable project(const std::vector<Variable>& outputs) {
  Variable sum;
  std::uint64_t seed = 1000;
  for (const Variable& output : outputs) {
    const Variable part = ops::weighted_sum(output, random_tensor(output.shape(), output.dtype(), seed++));
    sum = sum.defined() ? ops::add(sum, part) : part;
  }
  return sum;
}

GradCheckResult check_case(const OpCase& op_case, const OpCase::Function& function) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    inputs.push_back(random_tensor(op_case.inputs[i], DType::kF64, 1 + i, op_case.spread));
  }
  return check_gradients([&](Inputs in) { return project(function(in)); }, inputs);
}

}  // namespace gau
