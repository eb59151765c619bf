// What must hold for every method of length extrapolation, each on a model trained as the method needs it. Published versions
// of these methods were seen to break each of these properties.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "layers/model.h"
#include "tests/layers/planner_helpers.h"

namespace gau {
namespace {

constexpr std::int64_t kVocabulary = 20;
constexpr std::int64_t kLong = 40;

/// A method, the model it belongs to, and the lengths from which to which it must equal plain RoPE (0: never).
struct Property {
  std::string method;
  std::int64_t equal_from = 0;
  std::int64_t equal_to = 0;
  AttentionKind kind = AttentionKind::kDot;
  std::string position = "rope";
  std::string law = "none";
  bool differs = true;  ///< from RoPE beyond L_train
};

std::ostream& operator<<(std::ostream& out, const Property& property) { return out << property.method; }

std::vector<Property> properties() {
  const AttentionKind dot = AttentionKind::kDot, cosine = AttentionKind::kCosine;
  return {{"pi", 1, kTrain},
          {"ntk", 1, kTrain},
          {"yarn", 1, kTrain},
          {"rerope", 1, kTrain / 2 + 1},
          {"rerope:w=5", 1, 6},
          {"leaky-rerope", 1, kTrain},
          {"window", 1, kTrain},
          {"window:w=4", 1, 5},
          {"streaming", 1, 6},
          {"streaming:window=6;sinks=2;positions=absolute", 1, 7},
          {"lm-infinite", 1, kTrain + 1},
          {"lm-infinite:window=7;sinks=5;rows=5;clamp=7", 1, 8},
          {"rope+infoscale", kTrain, kTrain},
          {"rope+infoscale:count=valid;clip=1", 1, kTrain},
          {"rope+logn", 1, kTrain},
          {"rope+calibrated", 1, kTrain},
          {"rope+softmax-plus"},
          {"rope+scale-invariant"},
          {"rerope+infoscale", kTrain, 0},
          {"window:w=6+logn", 1, 7},
          {"rope+cosscale:s=9", 0, 0, cosine},
          {"rerope:w=5+infoscale:clip=1", 1, 6, cosine},
          {"rerope:w=5", 1, 6, AttentionKind::kKeyNorm},
          {"alibi", 0, 0, dot, "alibi"},
          {"hwfa", 0, 0, dot, "hwfa", "logn"},
          {"hwfa2", 0, 0, dot, "hwfa2", "logn"},
          {"ssmax", 0, 0, dot, "rope", "ssmax"},
          {"pose", 1, kLong, dot, "pose", "none", false},
          {"random", 1, kLong, dot, "random", "none", false}};
}

ModelConfig config_of(const Property& property) {
  ModelConfig config = model(2);
  config.hidden = 12;
  config.intermediate = 10;
  config.vocab_size = kVocabulary;
  config.dropout = config.attention_dropout = 0;
  AttentionConfig& attention = config.attention;
  attention.kind = property.kind;
  attention.scale = 6;
  attention.position = property.position;
  attention.law = property.law;
  // Differences between methods must not drown in a temperature near 0.
  attention.init_gamma = InitGamma::kNormal;
  for (const std::int64_t length : {std::int64_t{1}, kTrain + 1, kLong}) {
    attention.calibration.push_back({length, {1.3, 0.8}});
  }
  return config;
}

std::vector<std::int32_t> tokens(std::int64_t count, std::int32_t salt = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(1 + (7 * i * i + 3 * i + salt) % 19));
  return ids;
}

/// Sequences one under another, padded to `length`.
ModelInputs inputs_of(const std::vector<std::vector<std::int32_t>>& sequences, std::int64_t length) {
  std::vector<std::int32_t> ids, mask;
  for (std::vector<std::int32_t> sequence : sequences) {
    std::vector<std::int32_t> valid(sequence.size(), 1);
    sequence.resize(static_cast<std::size_t>(length), 0);
    valid.resize(static_cast<std::size_t>(length), 0);
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    mask.insert(mask.end(), valid.begin(), valid.end());
  }
  const Shape shape{static_cast<std::int64_t>(sequences.size()), length};
  ModelInputs inputs;
  inputs.ids = Tensor::from(ids, shape);
  if (std::find(mask.begin(), mask.end(), 0) != mask.end()) inputs.key_mask = Tensor::from(mask, shape);
  return inputs;
}

class MethodProperty : public testing::TestWithParam<Property> {
 protected:
  MethodProperty() : model_(config_of(GetParam()), DType::kF64) {
    model_.initialize(5);
    // Larger than at the start of training, so that attention is far from uniform.
    Tensor values = model_.parameters().values();
    double* value = values.data<double>();
    for (std::int64_t i = 0; i < values.size(); ++i) value[i] *= 1.5;
  }

  Tensor logits(const ModelInputs& inputs, const std::string& method, bool composed = false) const {
    NoGrad no_grad;
    Planner planner(model_.config(), parse_method(method), DType::kF64);
    Context context;
    context.composed = composed;
    return model_.logits(context, model_.hidden(context, inputs, planner), inputs.ids.dim(1), {}).value();
  }
  Tensor logits(const ModelInputs& inputs) const { return logits(inputs, GetParam().method); }

  /// Gradients of the loss at every third position.
  Tensor gradients(const ModelInputs& given, bool composed = false) {
    ModelInputs inputs = given;
    std::vector<std::int32_t> rows, labels;
    for (std::int64_t i = 0; i < inputs.ids.size(); i += 3) {
      rows.push_back(static_cast<std::int32_t>(i));
      labels.push_back(static_cast<std::int32_t>(1 + i % 19));
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    inputs.rows = Tensor::from(rows, {count});
    Planner planner(model_.config(), parse_method(GetParam().method), DType::kF64);
    Context context;
    context.composed = composed;
    model_.parameters().zero_gradients();
    backward(model_.masked_loss(context, inputs, Tensor::from(labels, {count}), planner).sum);
    return model_.parameters().gradients().clone();
  }

  static double largest_difference(const Tensor& a, const Tensor& b) {
    double most = 0;
    for (std::int64_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a.at(i) - b.at(i)));
    return most;
  }
  static bool finite(const Tensor& x) { return kernels::first_non_finite(x) == -1; }

  Model model_;
};

constexpr const char* kPlain = "rope+none";

TEST_P(MethodProperty, DiffersFromRopeBeyondTheTrainingLength) {
  const Property& property = GetParam();
  if (property.law == "ssmax") {
    // Its factor cannot be taken away; it must show in the plan, against that of a model without it.
    Property without = property;
    without.law = "none";
    const AttentionPlan with_law = Planner(model_.config(), parse_method("rope"), DType::kF64).plan(0, layout(kLong));
    const AttentionPlan none = Planner(config_of(without), parse_method("rope"), DType::kF64).plan(0, layout(kLong));
    EXPECT_GT(std::abs(with_law.row_factor.at(0) - none.row_factor.at(0)), 0.1);
    return;
  }
  const ModelInputs inputs = inputs_of({tokens(kLong)}, kLong);
  const double difference = largest_difference(logits(inputs), logits(inputs, kPlain));
  if (property.differs) {
    EXPECT_GT(difference, 1e-5);
  } else {
    EXPECT_EQ(difference, 0);
  }
}

TEST_P(MethodProperty, EqualsRopeWhereItsReachCoversTheSequence) {
  const Property& property = GetParam();
  for (std::int64_t length = std::max<std::int64_t>(1, property.equal_from); length <= property.equal_to; ++length) {
    const ModelInputs inputs = inputs_of({tokens(length)}, length);
    EXPECT_LT(largest_difference(logits(inputs), logits(inputs, kPlain)), 1e-11) << "length " << length;
  }
  if (property.equal_to == 0 || property.equal_to == kLong) return;
  // And not one token further, or two where one side of the middle decides.
  const std::int64_t beyond = property.equal_to + 1;
  const ModelInputs inputs = inputs_of({tokens(beyond)}, beyond);
  EXPECT_GT(largest_difference(logits(inputs), logits(inputs, kPlain)), 1e-9) << "length " << beyond;
}

TEST_P(MethodProperty, PaddingChangesNothing) {
  for (const std::int64_t tokens_there : {std::int64_t{5}, kTrain, kLong}) {
    const ModelInputs alone = inputs_of({tokens(tokens_there)}, tokens_there);
    ModelInputs padded = inputs_of({tokens(tokens_there), tokens(3, 4)}, tokens_there + 13);
    padded.nominal_length = tokens_there;
    const Tensor a = logits(alone), b = logits(padded);
    double most = 0;
    for (std::int64_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a.at(i) - b.at(i)));
    EXPECT_LT(most, 1e-11) << tokens_there << " tokens";
  }
}

TEST_P(MethodProperty, OneTokenAndNoneAreFinite) {
  const ModelInputs one = inputs_of({tokens(1)}, 1);
  EXPECT_TRUE(finite(logits(one)));
  EXPECT_TRUE(finite(gradients(one)));
  ModelInputs some_empty = inputs_of({tokens(kLong), {}, tokens(1)}, kLong);
  EXPECT_TRUE(finite(logits(some_empty)));
  EXPECT_TRUE(finite(gradients(some_empty)));
  EXPECT_LT(largest_difference(logits(inputs_of({tokens(kLong)}, kLong)), logits(some_empty)), 1e-11)
      << "the empty sequence reaches its neighbour";
}

TEST_P(MethodProperty, FusedEqualsComposedForwardAndBackward) {
  const ModelInputs inputs = inputs_of({tokens(kLong), tokens(kLong - 11, 2), tokens(1)}, kLong);
  const Tensor fused = logits(inputs), composed = logits(inputs, GetParam().method, true);
  EXPECT_LT(largest_difference(fused, composed), 1e-10);
  const Tensor fused_gradients = gradients(inputs), composed_gradients = gradients(inputs, true);
  double scale = 0;
  for (std::int64_t i = 0; i < fused_gradients.size(); ++i) scale = std::max(scale, std::abs(fused_gradients.at(i)));
  EXPECT_GT(scale, 1e-3);
  EXPECT_LT(largest_difference(fused_gradients, composed_gradients), 1e-10 * std::max(1.0, scale));
}

INSTANTIATE_TEST_SUITE_P(method, MethodProperty, testing::ValuesIn(properties()), [](const auto& tested) {
  std::string name = name_of(tested.param.kind) + std::string("_");
  for (const char c : tested.param.method) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

/// Which method, on which side the key is.
class FarRegion : public testing::TestWithParam<std::tuple<std::string, std::int64_t>> {};

TEST_P(FarRegion, LogitsAgreeWithTheNearOnesAtItsEdge) {
  const auto& [method, side] = GetParam();
  constexpr std::int64_t kEdge = 6;
  const AttentionPlan plan = plan_of(method, kLong);
  ASSERT_EQ(plan.near_limit, kEdge);
  NoGrad no_grad;
  Tensor q = Tensor::empty({1, kLong, kKeySize}, DType::kF64), k = q.clone();
  for (std::int64_t i = 0; i < q.size(); ++i) {
    q.data<double>()[i] = std::sin(static_cast<double>(3 * i + 1));
    k.data<double>()[i] = std::cos(static_cast<double>(i * i));
  }
  const auto rotated = [](const Tensor& x, const RotaryTable& table) { return ops::rotate(Variable(x), table, {}).value(); };
  const RegionRotation& far = side > 0 ? plan.left : plan.right;
  const Tensor q_near = rotated(q, plan.near.q), k_near = rotated(k, plan.near.k), q_far = rotated(q, far.q),
               k_far = rotated(k, far.k);
  for (std::int64_t i = kEdge; i + kEdge < kLong; ++i) {
    const std::int64_t j = i - side * kEdge;
    double near = 0, beyond = 0;
    for (std::int64_t d = 0; d < kKeySize; ++d) {
      near += q_near.at(i * kKeySize + d) * k_near.at(j * kKeySize + d);
      beyond += q_far.at(i * kKeySize + d) * k_far.at(j * kKeySize + d);
    }
    ASSERT_NEAR(near, beyond, 1e-11) << "query " << i << ", key " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(method, FarRegion,
                         testing::Combine(testing::Values("rerope:w=6", "leaky-rerope:w=6;k=3"), testing::Values(1, -1)),
                         [](const auto& tested) {
                           const std::string method = std::get<0>(tested.param);
                           return (method[0] == 'r' ? std::string("rerope") : std::string("leaky_rerope")) +
                                  (std::get<1>(tested.param) > 0 ? "_left" : "_right");
                         });

/// A name that is no method.
class UnknownName : public testing::TestWithParam<const char*> {};

TEST_P(UnknownName, IsAnErrorThatListsTheKnownOnes) {
  try {
    parse_method(GetParam());
    FAIL() << "taken for a method";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    for (const char* known : {"rope", "pi", "ntk", "yarn", "rerope", "leaky-rerope", "alibi", "window", "streaming",
                              "lm-infinite", "hwfa", "infoscale", "logn", "softmax-plus", "calibrated"}) {
      EXPECT_THAT(error.what(), testing::HasSubstr(known));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(method, UnknownName, testing::Values("lm-infinit", "selfextend", "rope+infoscal"),
                         [](const auto& tested) { return "number_" + std::to_string(tested.index); });

}  // namespace
}  // namespace gau
