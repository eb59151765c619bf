// AdamW and LAMB against scalar references in double, step by step.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/error.h"
#include "framework/parallel.h"
#include "framework/weights_scope.h"

namespace gau {
namespace {

struct Reference {
  std::vector<double> value, first, second;
};

/// A gradient that changes with the step, large enough for several blocks of the kernels.
double gradient_at(std::int64_t element, int step) { return std::sin(0.7 * static_cast<double>(element) + step) * (1 + step); }
double value_at(std::int64_t element) { return std::cos(0.3 * static_cast<double>(element)); }

FlatParameters make_parameters(DType dtype) {
  FlatParameters parameters;
  parameters.add("a", {70, 50});
  parameters.add("zero", {5});
  parameters.add("b", {13});
  parameters.allocate(dtype);
  return parameters;
}

template <class T>
void fill(FlatParameters& parameters, int step) {
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const bool zero = i >= 3500 && i < 3505;
    if (step == 0) parameters.values().data<T>()[i] = zero ? T(0) : static_cast<T>(value_at(i));
    parameters.gradients().data<T>()[i] = zero ? T(0) : static_cast<T>(gradient_at(i, step));
  }
}

OptimConfig make_config(OptimizerKind name) {
  OptimConfig optim;
  optim.name = name;
  optim.betas = {0.9, 0.98};
  optim.eps = name == OptimizerKind::kLamb ? 1e-6 : 1e-8;
  optim.weight_decay = 0.1;
  return optim;
}

Reference start(const FlatParameters& parameters) {
  Reference reference;
  const auto size = static_cast<std::size_t>(parameters.size());
  for (std::size_t i = 0; i < size; ++i) reference.value.push_back(parameters.values().at(static_cast<std::int64_t>(i)));
  reference.first.assign(size, 0);
  reference.second.assign(size, 0);
  return reference;
}

/// The raw direction of one element, moments updated; `t` counts from 1, 0: no bias correction.
double direction(Reference& r, std::size_t i, double gradient, const OptimConfig& optim, int t) {
  r.first[i] = optim.betas[0] * r.first[i] + (1 - optim.betas[0]) * gradient;
  r.second[i] = optim.betas[1] * r.second[i] + (1 - optim.betas[1]) * gradient * gradient;
  const double first = t == 0 ? r.first[i] : r.first[i] / (1 - std::pow(optim.betas[0], t));
  const double second = t == 0 ? r.second[i] : r.second[i] / (1 - std::pow(optim.betas[1], t));
  return first / (std::sqrt(second) + optim.eps) + optim.weight_decay * r.value[i];
}

void reference_adamw(Reference& r, const FlatParameters& parameters, const OptimConfig& optim, double lr, double scale, int t) {
  for (std::size_t i = 0; i < r.value.size(); ++i)
    r.value[i] -= lr * direction(r, i, scale * parameters.gradients().at(static_cast<std::int64_t>(i)), optim, t);
}

void reference_lamb(Reference& r, const FlatParameters& parameters, const OptimConfig& optim, double lr, double scale) {
  for (const Parameter& parameter : parameters.list()) {
    std::vector<double> update;
    double weight_norm = 0, update_norm = 0;
    for (std::int64_t k = 0; k < parameter.shape.size(); ++k) {
      const auto i = static_cast<std::size_t>(parameter.offset + k);
      update.push_back(direction(r, i, scale * parameters.gradients().at(parameter.offset + k), optim, 0));
      weight_norm += r.value[i] * r.value[i];
      update_norm += update.back() * update.back();
    }
    const double trust = weight_norm > 0 && update_norm > 0 ? std::sqrt(weight_norm / update_norm) : 1;
    for (std::size_t k = 0; k < update.size(); ++k)
      r.value[static_cast<std::size_t>(parameter.offset) + k] -= lr * trust * update[k];
  }
}

template <class T>
void compare(OptimizerKind name, DType dtype, double tolerance) {
  FlatParameters parameters = make_parameters(dtype);
  const OptimConfig optim = make_config(name);
  fill<T>(parameters, 0);
  Optimizer optimizer(optim, parameters);
  Reference reference = start(parameters);
  for (int step = 0; step < 5; ++step) {
    fill<T>(parameters, step == 0 ? 0 : step);
    const double lr = 0.01 * (step + 1), scale = 0.25;
    if (name == OptimizerKind::kLamb)
      reference_lamb(reference, parameters, optim, lr, scale);
    else
      reference_adamw(reference, parameters, optim, lr, scale, step + 1);
    optimizer.apply(lr, scale);
  }
  EXPECT_EQ(optimizer.updates(), 5);
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    ASSERT_NEAR(parameters.values().at(i), reference.value[k], tolerance) << i;
    ASSERT_NEAR(optimizer.first().at(i), reference.first[k], tolerance) << i;
    ASSERT_NEAR(optimizer.second().at(i), reference.second[k], 10 * tolerance) << i;
  }
}

TEST(Optimizer, AdamWMatchesTheReferenceInDouble) { compare<double>(OptimizerKind::kAdamW, DType::kF64, 1e-13); }
TEST(Optimizer, AdamWMatchesTheReferenceInFloat) { compare<float>(OptimizerKind::kAdamW, DType::kF32, 3e-6); }
TEST(Optimizer, LambMatchesTheReferenceInDouble) { compare<double>(OptimizerKind::kLamb, DType::kF64, 1e-13); }
TEST(Optimizer, LambMatchesTheReferenceInFloat) { compare<float>(OptimizerKind::kLamb, DType::kF32, 3e-6); }

TEST(Optimizer, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Tensor> results;
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    FlatParameters parameters = make_parameters(DType::kF32);
    fill<float>(parameters, 0);
    Optimizer optimizer(make_config(OptimizerKind::kLamb), parameters);
    for (int step = 0; step < 3; ++step) optimizer.apply(0.01, gradient_norm(parameters));
    results.push_back(parameters.values().clone());
  }
  set_threads(before);
  for (std::int64_t i = 0; i < results[0].size(); ++i) ASSERT_EQ(results[0].at(i), results[1].at(i)) << i;
}

TEST(Optimizer, RestoreTakesUpWhereItWas) {
  FlatParameters straight = make_parameters(DType::kF32), resumed = make_parameters(DType::kF32);
  fill<float>(straight, 0);
  fill<float>(resumed, 0);
  const OptimConfig optim = make_config(OptimizerKind::kAdamW);
  Optimizer one(optim, straight), first(optim, resumed), second(optim, resumed);
  for (int step = 0; step < 4; ++step) one.apply(0.01, 1);
  for (int step = 0; step < 2; ++step) first.apply(0.01, 1);
  second.restore(first.updates(), first.first().clone(), first.second().clone());
  for (int step = 0; step < 2; ++step) second.apply(0.01, 1);
  for (std::int64_t i = 0; i < straight.size(); ++i) ASSERT_EQ(straight.values().at(i), resumed.values().at(i)) << i;
}

TEST(Optimizer, RestoreRefusesAnotherModelsState) {
  FlatParameters parameters = make_parameters(DType::kF32);
  Optimizer optimizer(make_config(OptimizerKind::kAdamW), parameters);
  const Tensor wrong = Tensor::zeros({3}, DType::kF32), other = Tensor::zeros({parameters.size()}, DType::kF64);
  EXPECT_THROW(optimizer.restore(1, wrong, wrong), Error);
  EXPECT_THROW(optimizer.restore(1, other, other), Error);
}

TEST(Optimizer, NormAndClipping) {
  FlatParameters parameters = make_parameters(DType::kF64);
  fill<double>(parameters, 0);
  double squares = 0;
  for (std::int64_t i = 0; i < parameters.size(); ++i) squares += std::pow(parameters.gradients().at(i), 2);
  EXPECT_NEAR(gradient_norm(parameters), std::sqrt(squares), 1e-10);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(1e9, 0), 1);
}

// Products may keep copies of the parameters while a scope is open; an update would leave these behind.
TEST(Optimizer, LeavesParametersOfAnOpenScopeAlone) {
  FlatParameters parameters = make_parameters(DType::kF32);
  fill<float>(parameters, 0);
  Optimizer optimizer(make_config(OptimizerKind::kAdamW), parameters);
  const Tensor before = parameters.values().clone();
  {
    const WeightsScope scope(parameters.values());
    EXPECT_THROW(optimizer.apply(0.1, 1), Error);
  }
  for (std::int64_t i = 0; i < parameters.size(); ++i) ASSERT_EQ(parameters.values().at(i), before.at(i));
  EXPECT_EQ(optimizer.updates(), 0);
  optimizer.apply(0.1, 1);
  EXPECT_NE(parameters.values().at(0), before.at(0));
}

}  // namespace
}  // namespace gau
