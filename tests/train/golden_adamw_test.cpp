// Three optimizer steps of the golden model: loss, gradient norm, clipping and AdamW as training composes them, in double.
#include <gtest/gtest.h>

#include "autograd/variable.h"
#include "tests/layers/golden.h"
#include "train/optimizer.h"

namespace gau {
namespace {

void expect_weights(const Model& model) {
  for (const std::string& name : golden::file().list("/adamw/weights")) {
    const std::vector<double> wanted = golden::file().read<double>("/adamw/weights/" + name);
    const Tensor got = model.parameters().find(golden::model_name(name)).variable.value();
    ASSERT_EQ(static_cast<std::size_t>(got.size()), wanted.size()) << name;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(got.at(static_cast<std::int64_t>(i)), wanted[i], 1e-10) << name << " " << i;
  }
}

TEST(GoldenAdamW, ThreeStepsGiveTheReferenceWeights) {
  const golden::Case c("softmax");
  Model model = c.model(DType::kF64);
  Planner planner = c.planner(DType::kF64);
  ModelInputs inputs = c.inputs;
  std::vector<std::int32_t> rows, labels;
  const auto all = golden::file().read<std::int32_t>("/inputs/labels");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0) continue;
    rows.push_back(static_cast<std::int32_t>(i));
    labels.push_back(all[i]);
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  inputs.rows = Tensor::from(rows, {count});

  OptimConfig optim;
  optim.weight_decay = golden::file().real_attribute("/adamw", "weight_decay");
  Optimizer optimizer(optim, model.parameters());
  const auto rates = golden::file().read<double>("/adamw/lr");
  const auto losses = golden::file().read<double>("/adamw/loss");
  const auto norms = golden::file().read<double>("/adamw/grad_norm");
  for (std::size_t step = 0; step < rates.size(); ++step) {
    model.parameters().zero_gradients();
    const MaskedLoss loss = model.masked_loss(Context{}, inputs, Tensor::from(labels, {count}), planner);
    backward(loss.sum);
    const double tokens = static_cast<double>(loss.count);
    const double norm = gradient_norm(model.parameters()) / tokens;
    EXPECT_NEAR(loss.sum.value().item() / tokens, losses[step], 1e-10) << step;
    EXPECT_NEAR(norm, norms[step], 1e-10) << step;
    optimizer.apply(rates[step], clip_factor(norm, golden::file().real_attribute("/adamw", "clip_norm")) / tokens);
  }
  expect_weights(model);
}

}  // namespace
}  // namespace gau
