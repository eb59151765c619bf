// Hooks of backward: when a leaf's gradient is final.
#include "autograd/variable.h"

#include <gtest/gtest.h>

#include <map>

#include "autograd/ops.h"
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
      record("first_alone", used.value(), {used, product}, [](std::span<const Tensor> g, std::span<const char>) {
        return std::vector<Tensor>{g[0], {}};
      });
  Told told;
  backward(ops::weighted_sum(joined, numbers({2, 2}, 1)), told.hooks());
  ASSERT_EQ(told.order.size(), 2U);
  EXPECT_EQ(told.order.front(), used.grad().raw());
  EXPECT_EQ(told.order.back(), unreached.grad().raw());
}

}  // namespace
}  // namespace gau
