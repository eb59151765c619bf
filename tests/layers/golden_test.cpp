// The model against the golden values: logits, loss, gradients, hidden states, attention, in double and in float.
#include "tests/layers/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/variable.h"

namespace gau {
namespace {

using golden::Case;
using golden::file;

/// max |got - wanted| / max |wanted|.
double difference(const Tensor& got, const std::vector<double>& wanted) {
  EXPECT_EQ(static_cast<std::size_t>(got.size()), wanted.size());
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, std::abs(got.at(static_cast<std::int64_t>(i)) - wanted[i]));
    scale = std::max(scale, std::abs(wanted[i]));
  }
  return most / scale;
}

struct Labelled {
  Tensor rows;
  Tensor labels;
};

Labelled labelled_rows() {
  std::vector<std::int32_t> rows, labels;
  const auto all = file().read<std::int32_t>("/inputs/labels");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0) continue;
    rows.push_back(static_cast<std::int32_t>(i));
    labels.push_back(all[i]);
  }
  while (rows.size() < 32) {
    rows.push_back(-1);
    labels.push_back(-1);
  }
  return {Tensor::from(rows, {32}), Tensor::from(labels, {32})};
}

class Golden : public testing::TestWithParam<std::string> {};
class GoldenMistakes : public testing::TestWithParam<std::string> {};

void check_logits(const Case& c, DType dtype, double tolerance) {
  NoGrad no_grad;
  const Model model = c.model(dtype);
  Planner planner = c.planner(dtype);
  const std::string at = "/cases/" + c.name;
  for (const bool composed : {false, true}) {
    Context context;
    context.composed = composed;
    const bool with_hidden = file().has(at + "/hidden");
    const std::vector<double> hidden = with_hidden ? file().read<double>(at + "/hidden") : std::vector<double>{};
    const Variable x = model.hidden(context, c.inputs, planner, [&](std::int64_t layer, const Variable& state) {
      if (!with_hidden) return;
      const auto begin = hidden.begin() + layer * state.value().size();
      EXPECT_LE(difference(state.value(), {begin, begin + state.value().size()}), tolerance) << "hidden " << layer;
    });
    const Tensor logits = model.logits(context, x, 24, {}).value();
    EXPECT_LE(difference(logits, file().read<double>(at + "/logits")), tolerance) << (composed ? "composed" : "fused");
  }
  if (!file().has(at + "/attention")) return;
  const std::vector<double> attention = file().read<double>(at + "/attention");
  const std::vector<Tensor> weights = model.attention(c.inputs, planner);
  for (std::size_t layer = 0; layer < weights.size(); ++layer) {
    const auto begin = attention.begin() + static_cast<std::ptrdiff_t>(layer) * weights[layer].size();
    EXPECT_LE(difference(weights[layer], {begin, begin + weights[layer].size()}), tolerance) << "attention " << layer;
  }
}

void check_gradients_of(const Case& c, DType dtype, double tolerance, bool composed) {
  Model model = c.model(dtype);
  Planner planner = c.planner(dtype);
  const std::string at = "/cases/" + c.name;
  const Labelled labelled = labelled_rows();
  ModelInputs inputs = c.inputs;
  inputs.rows = labelled.rows;
  Context context;
  context.composed = composed;
  const MaskedLoss loss = model.masked_loss(context, inputs, labelled.labels, planner);
  ASSERT_EQ(loss.count, 10);
  const double wanted = file().read<double>(at + "/loss").front();
  EXPECT_LE(std::abs(loss.sum.value().item() / 10 - wanted) / wanted, tolerance);
  backward(loss.sum);
  double most = 0, scale = 0;
  for (const std::string& name : file().list(at + "/grads")) {
    const std::vector<double> reference = file().read<double>(at + "/grads/" + name);
    const Tensor& gradient = model.parameters().find(golden::model_name(name)).variable.grad();
    ASSERT_EQ(static_cast<std::size_t>(gradient.size()), reference.size());
    for (std::size_t i = 0; i < reference.size(); ++i) {
      most = std::max(most, std::abs(gradient.at(static_cast<std::int64_t>(i)) / 10 - reference[i]));
      scale = std::max(scale, std::abs(reference[i]));
    }
  }
  EXPECT_GT(scale, 1e-3);
  EXPECT_LE(most / scale, tolerance);
}

TEST_P(Golden, LogitsInDouble) {
  const Case c(GetParam());
  check_logits(c, DType::kF64, 1e-12);
}

TEST_P(Golden, LogitsInFloat) {
  const Case c(GetParam());
  check_logits(c, DType::kF32, 1e-5);
}

TEST_P(Golden, GradientsInDouble) {
  const Case c(GetParam());
  check_gradients_of(c, DType::kF64, 1e-10, false);
  check_gradients_of(c, DType::kF64, 1e-10, true);
}

TEST_P(Golden, GradientsInFloat) {
  const Case c(GetParam());
  check_gradients_of(c, DType::kF32, 1e-4, false);
}

// Cases that reproduce mistakes of published code: the right definition must give something else.
TEST_P(GoldenMistakes, AreNotReproduced) {
  const Case c(GetParam());
  NoGrad no_grad;
  const Model model = c.model(DType::kF64);
  Planner planner = c.planner(DType::kF64);
  const Variable x = model.hidden({}, c.inputs, planner);
  EXPECT_GT(difference(model.logits({}, x, 24, {}).value(), file().read<double>("/cases/" + c.name + "/logits")), 1e-4);
}

std::string plain(const testing::TestParamInfo<std::string>& info) { return info.param; }

std::vector<std::string> cases(bool quirks) {
  std::vector<std::string> names;
  for (const std::string& name : file().list("/cases")) {
    if (Case(name).quirks == quirks) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(method, Golden, testing::ValuesIn(cases(false)), plain);
INSTANTIATE_TEST_SUITE_P(method, GoldenMistakes, testing::ValuesIn(cases(true)), plain);

}  // namespace
}  // namespace gau
