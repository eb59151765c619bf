// Hooks of backward: when a leaf's gradient is final.
#include "autograd/variable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "autograd/ops.h"
#include "framework/error.h"
#include "framework/kernels.h"

namespace gau {
namespace {

/// The gradient of each leaf as it was when it was told to be done.
struct Told {
  std::vector<const void*> order;
  std::map<const void*, std::vector<double>> values;

  BackwardHooks hooks() {
    return {{}, [this](const Tensor& gradient) {
              order.push_back(gradient.raw());
              for (double value : gradient.span<double>()) values[gradient.raw()].push_back(value);
            }};
  }
};

Tensor numbers(const Shape& shape, double from) {
  Tensor x = Tensor::empty(shape, DType::kF64);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<double>()[i] = from + 0.25 * static_cast<double>(i);
  return x;
}

Variable leaf(double from) { return Variable(numbers({2, 2}, from), Tensor::zeros({2, 2}, DType::kF64)); }

TEST(Backward, TellsEachLeafOnceWhenNothingIsAddedAnyMore) {
  const Variable shared = leaf(1), first = leaf(2), second = leaf(3);
  // `shared` is read twice by the first op, so it is done last.
  Variable x = ops::linear(shared, shared);
  x = ops::linear(x, first);
  x = ops::linear(x, second);
  const Variable root = ops::weighted_sum(x, numbers({2, 2}, 0.5));
  Told told;
  int ops_seen = 0;
  BackwardHooks hooks = told.hooks();
  hooks.after_op = [&] { ++ops_seen; };
  backward(root, hooks);
  EXPECT_EQ(ops_seen, 4);
  const std::vector<const void*> wanted{second.grad().raw(), first.grad().raw(), shared.grad().raw()};
  EXPECT_EQ(told.order, wanted);
  for (const Variable* variable : {&shared, &first, &second}) {
    const auto final_values = variable->grad().span<double>();
    EXPECT_EQ(told.values[variable->grad().raw()], std::vector<double>(final_values.begin(), final_values.end()));
    EXPECT_NE(final_values[0], 0);
  }
}

TEST(Backward, TellsLeavesThatNoGradientReaches) {
  const Variable used = leaf(1), unreached = leaf(2);
  // An op whose backward has nothing for its second input.
  const Variable product = ops::multiply(unreached, unreached);
  const Variable joined =
      record("first_alone", used.value(), {used, product}, [](std::span<const Tensor> g, std::span<const Wanted>) {
        return std::vector<Tensor>{g[0], {}};
      });
  Told told;
  backward(ops::weighted_sum(joined, numbers({2, 2}, 1)), told.hooks());
  ASSERT_EQ(told.order.size(), 2U);
  EXPECT_EQ(told.order.front(), used.grad().raw());
  EXPECT_EQ(told.order.back(), unreached.grad().raw());
}

TEST(Backward, LeavesThatNoGradientReachesAreSettled) {
  Variable used = leaf(1), unreached = leaf(2), elsewhere = leaf(3);
  for (Variable* variable : {&used, &unreached, &elsewhere}) {
    const Tensor buffer = Tensor::empty({2, 2}, DType::kF64);
    kernels::fill(buffer, std::nan(""));
    variable->restart_grad(buffer);
  }
  const Variable joined =
      record("first_alone", used.value(), {used, unreached}, [](std::span<const Tensor> g, std::span<const Wanted>) {
        return std::vector<Tensor>{g[0], {}};
      });
  Told told;
  backward(ops::weighted_sum(joined, numbers({2, 2}, 1)), told.hooks());
  EXPECT_EQ(told.values[unreached.grad().raw()], std::vector<double>(4, 0.0));
  EXPECT_TRUE(std::isnan(elsewhere.grad().at(0)));
  elsewhere.settle_grad();
  used.settle_grad();
  EXPECT_EQ(elsewhere.grad().at(3), 0);
  EXPECT_EQ(used.grad().at(0), 1);
  EXPECT_THROW(used.restart_grad(Tensor::empty({3}, DType::kF64)), Error);
}

// Ops that add into a leaf's buffer themselves: what was there stays, and the rest is the gradient that they return otherwise.
TEST(Backward, OpsAddIntoTheBuffersOfLeaves) {
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{2, 0, 2}, {3}),
               types = Tensor::from(std::vector<std::int32_t>{1, 0, 1}, {3});
  using Use = std::function<Variable(const Variable&)>;
  const Variable x(numbers({3, 2}, -1));
  const std::vector<std::pair<const char*, Use>> uses{
      {"linear", [&](const Variable& w) { return ops::linear(x, w); }},
      {"an op that returns its gradient", [&](const Variable& w) { return ops::multiply(w, w); }},
      {"slice_rows", [&](const Variable& w) { return ops::linear(x, ops::slice_rows(w, 1, 3)); }},
      {"embed, words",
       [&](const Variable& w) {
         return ops::embed(w, Variable(numbers({2, 2}, 0)), ids, types, 0);
       }},
      {"embed, types",
       [&](const Variable& w) {
         return ops::embed(Variable(numbers({3, 2}, 0)), w, ids, types, 0);
       }},
  };
  for (const auto& [name, use] : uses) {
    const auto run = [&use = use](const Variable& w) {
      const Variable y = use(w);
      backward(ops::weighted_sum(y, numbers(y.shape(), 0.5)));
    };
    const Variable plain(numbers({3, 2}, 1), true);
    run(plain);
    const Tensor before = numbers({3, 2}, 7);
    const Variable buffered(numbers({3, 2}, 1), before.clone());
    run(buffered);
    run(buffered);
    for (std::int64_t i = 0; i < before.size(); ++i) {
      EXPECT_DOUBLE_EQ(buffered.grad().at(i), before.at(i) + 2 * plain.grad().at(i)) << name << ", element " << i;
    }
    // Handed another buffer, the first gradient takes the place of what is there.
    Variable restarted = buffered;
    const Tensor other = Tensor::empty({3, 2}, DType::kF64);
    kernels::fill(other, std::nan(""));
    restarted.restart_grad(other);
    run(restarted);
    run(restarted);
    EXPECT_TRUE(buffered.grad().same_storage(other));
    for (std::int64_t i = 0; i < other.size(); ++i) EXPECT_DOUBLE_EQ(other.at(i), 2 * plain.grad().at(i)) << name << " " << i;
  }
}

// What its products share is rounded once, to the numbers that each of them would round it to.
TEST(Backward, LinearInBf16MultipliesRoundedOperands) {
  const auto f32 = [](const Shape& shape, double from) { return numbers(shape, from).to(DType::kF32); };
  const auto rounded = [](const Tensor& x) { return x.to(DType::kBF16).to(DType::kF32); };
  const Tensor weights = f32({3, 4}, 0.11), in = f32({2, 4}, -0.37), slope = f32({2, 3}, 0.23);
  const auto gradients = [&](const Tensor& x_value, const Tensor& w_value, const Tensor& g) {
    const Variable x(x_value, true), w(w_value, true);
    backward(ops::weighted_sum(ops::linear(x, w), g));
    return std::pair{x.grad(), w.grad()};
  };
  const auto expected = gradients(rounded(in), rounded(weights), rounded(slope));
  const ProductTypeScope scope(backend(), DType::kBF16);
  const auto got = gradients(in, weights, slope);
  for (std::int64_t i = 0; i < in.size(); ++i) EXPECT_NEAR(got.first.at(i), expected.first.at(i), 1e-6) << i;
  for (std::int64_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(got.second.at(i), expected.second.at(i), 1e-6) << i;
}

}  // namespace
}  // namespace gau
