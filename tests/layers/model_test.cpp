// The model against the plain scalar one, and what must hold whatever the values: padding, rows, empty sequences, zero vectors.
#include "layers/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/variable.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/parallel.h"
#include "layers/model_check.h"
#include "tests/layers/scalar_model.h"

namespace gau {
namespace {

ModelConfig small(AttentionKind kind) {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 24;
  config.intermediate = 40;
  config.key_size = 16;
  config.vocab_size = 30;
  config.attention.kind = kind;
  config.attention.scale = 12;
  config.attention.train_length = 8;
  return config;
}

Tensor ids_of(const std::vector<std::int32_t>& ids, std::int64_t batch) {
  return Tensor::from(ids, {batch, static_cast<std::int64_t>(ids.size()) / batch});
}

std::vector<std::int32_t> some_ids(std::int32_t count) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i) ids.push_back(1 + (i * i + 3 * i) % 29);
  return ids;
}

Tensor all_logits(const Model& model, const ModelInputs& inputs, const std::string& method) {
  NoGrad no_grad;
  Planner planner(model.config(), parse_method(method), model.dtype());
  const Variable x = model.hidden({}, inputs, planner);
  return model.logits({}, x, inputs.ids.dim(1), inputs.rows).value();
}

void expect_close(const Tensor& got, const scalar::Matrix& wanted, double tolerance) {
  double scale = 0;
  for (const auto& row : wanted) {
    for (const double value : row) scale = std::max(scale, std::abs(value));
  }
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    for (std::size_t c = 0; c < wanted[r].size(); ++c) {
      ASSERT_NEAR(got.at(static_cast<std::int64_t>(r * wanted[r].size() + c)), wanted[r][c], tolerance * scale)
          << r << " " << c;
    }
  }
}

struct ScalarCase {
  std::string name;
  AttentionKind kind;
  std::string method;
  scalar::Attention attention;
};

class AgainstScalar : public testing::TestWithParam<ScalarCase> {};

TEST_P(AgainstScalar, LogitsAgree) {
  const ScalarCase& c = GetParam();
  const std::vector<std::int32_t> ids = some_ids(21);
  std::vector<bool> valid(21, true);
  std::vector<std::int32_t> mask(21, 1);
  for (const std::size_t hole : {5U, 19U, 20U}) {
    valid[hole] = false;
    mask[hole] = 0;
  }
  ModelInputs inputs;
  inputs.ids = ids_of(ids, 1);
  inputs.key_mask = Tensor::from(mask, {1, 21});
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    Model model(small(c.kind), dtype);
    model.initialize(4);
    const scalar::Matrix wanted = scalar::logits(model, ids, valid, c.attention);
    expect_close(all_logits(model, inputs, c.method), wanted, dtype == DType::kF64 ? 1e-12 : 1e-5);
  }
}

std::vector<ScalarCase> scalar_cases() {
  scalar::Attention plain, window, info, rerope, alibi;
  window.visible = [](std::int64_t i, std::int64_t j) { return std::abs(i - j) <= 6; };
  info.temperature = [](std::int64_t n) {
    return std::sqrt((1 - std::pow(static_cast<double>(n), -2.0 / 16)) / (1 - std::pow(8.0, -2.0 / 16)));
  };
  rerope.distance = [](std::int64_t i, std::int64_t j) {
    return std::abs(i - j) < 5 ? static_cast<double>(i - j) : i > j ? 5.0 : -5.0;
  };
  alibi.distance = [](std::int64_t, std::int64_t) { return 0.0; };
  alibi.bias = [](std::int64_t i, std::int64_t j) {
    return i > j ? -0.25 * static_cast<double>(i - j) : -0.125 * static_cast<double>(j - i);
  };
  return {{"dot", AttentionKind::kDot, "rope", plain},
          {"cosine", AttentionKind::kCosine, "rope", plain},
          {"keynorm", AttentionKind::kKeyNorm, "rope", plain},
          {"infoscale", AttentionKind::kCosine, "rope+infoscale", info},
          {"window", AttentionKind::kDot, "window:w=6", window},
          {"rerope", AttentionKind::kDot, "rerope:w=5", rerope},
          {"alibi", AttentionKind::kDot, "alibi:left=0.25;right=0.125", alibi}};
}

INSTANTIATE_TEST_SUITE_P(method, AgainstScalar, testing::ValuesIn(scalar_cases()),
                         [](const auto& tested) { return tested.param.name; });

class ModelGradients : public testing::TestWithParam<ModelCase> {};

TEST_P(ModelGradients, EqualFiniteDifferences) {
  const GradCheckResult result = check_model(GetParam());
  EXPECT_FALSE(result.vacuous());
  EXPECT_LE(result.error(), 1e-6) << result.worst;
}

INSTANTIATE_TEST_SUITE_P(All, ModelGradients, testing::ValuesIn(model_cases()), [](const auto& tested) {
  std::string name;
  for (const char c : tested.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Model, RowsOfTheLastLayerAreThoseOfTheWholePass) {
  Model model(small(AttentionKind::kCosine), DType::kF64);
  model.initialize(1);
  ModelInputs inputs;
  inputs.ids = ids_of(some_ids(40), 2);
  const Tensor all = all_logits(model, inputs, "rerope:w=4+infoscale");
  inputs.rows = Tensor::from(std::vector<std::int32_t>{0, 7, 19, 21, 39, -1}, {6});
  const Tensor some = all_logits(model, inputs, "rerope:w=4+infoscale");
  for (std::int64_t m = 0; m < 5; ++m) {
    for (std::int64_t c = 0; c < 30; ++c) {
      EXPECT_NEAR(some.at(m * 30 + c), all.at(inputs.rows.data<std::int32_t>()[m] * 30 + c), 1e-12);
    }
  }
}

TEST(Model, PaddingChangesNothing) {
  for (const char* method : {"rope", "rope+infoscale", "window:w=3", "rerope:w=3", "streaming:window=3;sinks=2"}) {
    Model model(small(AttentionKind::kDot), DType::kF64);
    model.initialize(1);
    ModelInputs alone, padded;
    alone.ids = ids_of(some_ids(9), 1);
    std::vector<std::int32_t> longer = some_ids(9), mask(9, 1);
    longer.resize(14, 0);
    mask.resize(14, 0);
    padded.ids = ids_of(longer, 1);
    padded.key_mask = Tensor::from(mask, {1, 14});
    const Tensor a = all_logits(model, alone, method), b = all_logits(model, padded, method);
    for (std::int64_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a.at(i), b.at(i), 1e-12) << method;
  }
}

TEST(Model, SequenceWithoutTokensPassesNothingOn) {
  for (const char* method : {"rope", "rope+infoscale", "rope+softmax-plus", "window:w=2"}) {
    Model model(small(AttentionKind::kDot), DType::kF32);
    model.initialize(1);
    Planner planner(model.config(), parse_method(method), DType::kF32);
    const std::vector<std::int32_t> first = some_ids(6);
    std::vector<std::int32_t> both = first;
    both.resize(12, 0);
    ModelInputs alone, with_empty;
    alone.ids = ids_of(first, 1);
    with_empty.ids = ids_of(both, 2);
    with_empty.key_mask = Tensor::from(std::vector<std::int32_t>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, {2, 6});
    const Tensor a = all_logits(model, alone, method), b = all_logits(model, with_empty, method);
    for (std::int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.at(i), b.at(i)) << method;
    for (std::int64_t i = 0; i < b.size(); ++i) ASSERT_TRUE(std::isfinite(b.at(i))) << method;

    with_empty.rows = Tensor::from(std::vector<std::int32_t>{2, 8}, {2});
    const MaskedLoss loss = model.masked_loss({}, with_empty, Tensor::from(std::vector<std::int32_t>{3, 4}, {2}), planner);
    backward(loss.sum);
    EXPECT_EQ(kernels::first_non_finite(model.parameters().gradients()), -1) << method;
  }
}

TEST(Model, ZeroVectorsUnderTheNormStayFinite) {
  Model model(small(AttentionKind::kCosine), DType::kF32);
  model.initialize(1);
  Tensor gamma = model.parameters().find("gau_alpha.encoder.layer.0.gau.q_scaleoffset.weight").variable.value();
  kernels::fill(gamma, 0);
  Planner planner(model.config(), Method{}, DType::kF32);
  ModelInputs inputs;
  inputs.ids = ids_of(some_ids(8), 1);
  const std::vector<Tensor> weights = model.attention(inputs, planner);
  for (std::int64_t i = 0; i < weights[0].size(); ++i) EXPECT_FLOAT_EQ(static_cast<float>(weights[0].at(i)), 0.125F);
  inputs.rows = Tensor::from(std::vector<std::int32_t>{1, 5}, {2});
  const MaskedLoss loss = model.masked_loss({}, inputs, Tensor::from(std::vector<std::int32_t>{3, 4}, {2}), planner);
  backward(loss.sum);
  EXPECT_TRUE(std::isfinite(loss.sum.value().item()));
  EXPECT_EQ(kernels::first_non_finite(model.parameters().gradients()), -1);
  EXPECT_GT(kernels::sum_of_squares(model.parameters().gradients()), 0);
}

TEST(Model, SameBitsForAnyNumberOfThreads) {
  ModelConfig config = small(AttentionKind::kDot);
  config.hidden = 128;
  config.intermediate = 256;
  config.key_size = 64;
  const auto gradients = [&](int count) {
    set_threads(count);
    Model model(config, DType::kF32);
    model.initialize(1);
    Planner planner(config, Method{}, DType::kF32);
    ModelInputs inputs;
    inputs.ids = ids_of(some_ids(64 * 32), 32);
    std::vector<std::int32_t> rows, labels;
    for (std::int32_t r = 3; r < 64 * 32; r += 7) {
      rows.push_back(r);
      labels.push_back(r % 30);
    }
    inputs.rows = Tensor::from(rows, {static_cast<std::int64_t>(rows.size())});
    Context context;
    context.training = true;
    backward(model.masked_loss(context, inputs, Tensor::from(labels, {static_cast<std::int64_t>(labels.size())}), planner).sum);
    return model.parameters().gradients();
  };
  const int before = threads();
  const Tensor one = gradients(1);
  for (const int count : {2, 3, 4}) {
    const Tensor many = gradients(count);
    for (std::int64_t i = 0; i < one.size(); ++i) ASSERT_EQ(one.data<float>()[i], many.data<float>()[i]) << count << " threads";
  }
  set_threads(before);
}

TEST(Model, ValuesOutsideTheVocabularyAreNamed) {
  Model model(small(AttentionKind::kDot), DType::kF32);
  ModelInputs inputs;
  inputs.ids = ids_of({1, 2, 30, 4}, 2);
  try {
    all_logits(model, inputs, "rope");
    FAIL() << "an id of 30 passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("value 30 at row 1, column 0"), std::string::npos) << error.what();
  }
}

}  // namespace

void PrintTo(const ModelCase& model_case, std::ostream* out) { *out << model_case.name; }

}  // namespace gau
