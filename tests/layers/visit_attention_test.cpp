// What visit_attention() shows of each layer: the inputs that forward() uses, at the rows asked for.
#include <gtest/gtest.h>

#include "framework/kernels.h"
#include "layers/model.h"

namespace gau {
namespace {

ModelConfig small() {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 16;
  config.intermediate = 24;
  config.key_size = 8;
  config.vocab_size = 20;
  config.attention.train_length = 4;
  return config;
}

ModelInputs some_inputs() {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 24; ++i) ids.push_back(1 + i * i % 19);
  ModelInputs inputs;
  inputs.ids = Tensor::from(ids, {2, 12});
  return inputs;
}

TEST(VisitAttention, ShowsTheWantedRowsOfEveryLayer) {
  Model model(small(), DType::kF64);
  model.initialize(5);
  for (const char* method : {"rope", "rerope:w=3", "window:w=2+infoscale"}) {
    Planner planner(model.config(), parse_method(method), DType::kF64);
    ModelInputs inputs = some_inputs();
    const std::vector<Tensor> all = model.attention(inputs, planner);
    ASSERT_EQ(all.size(), 3u);
    inputs.rows =
        Tensor::from(std::vector<std::int32_t>{2, 7, 12}, {3});  // rows 2 and 7 of the first, 0 of the second sequence
    std::int64_t visited = 0;
    model.visit_attention(inputs, planner, [&](std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan) {
      EXPECT_EQ(layer, visited++);
      Tensor weights = Tensor::empty({2, in.q_near.dim(1), 12}, DType::kF64);
      kernels::attention_weights(in, plan, weights);
      const Tensor& whole = all[static_cast<std::size_t>(layer)];
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t r = 0; r < in.q_near.dim(1); ++r) {
          const std::int64_t at = b * in.q_near.dim(1) + r, position = static_cast<std::int64_t>(in.rows.at(at));
          for (std::int64_t j = 0; j < 12 && position >= 0; ++j) {
            EXPECT_NEAR(weights.at(at * 12 + j), whole.at((b * 12 + position) * 12 + j), 1e-13) << method << " " << layer;
          }
        }
      }
    });
    EXPECT_EQ(visited, 3);
  }
}

TEST(VisitAttention, ALayerRunsByThePlanOfAfterItsVisit) {
  Model model(small(), DType::kF64);
  model.initialize(5);
  const ModelInputs inputs = some_inputs();
  const auto keys_of_last = [&](const char* first, const char* later) {
    Planner planner(model.config(), parse_method(first), DType::kF64);
    Tensor keys;
    model.visit_attention(inputs, planner, [&](std::int64_t layer, const AttentionInputs& in, const AttentionPlan&) {
      if (layer == 0) planner = Planner(model.config(), parse_method(later), DType::kF64);
      keys = in.k_near;
    });
    return keys.at(100);
  };
  EXPECT_EQ(keys_of_last("rope", "rope+logn"), keys_of_last("rope+logn", "rope+logn"));
  EXPECT_NE(keys_of_last("rope", "rope+logn"), keys_of_last("rope", "rope"));
}

}  // namespace
}  // namespace gau
