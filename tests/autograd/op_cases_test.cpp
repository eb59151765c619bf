// Every op: gradients in double, float against double, fused against composed.
#include "autograd/op_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gau {
namespace {

struct Results {
  std::vector<Tensor> values;
  std::vector<Tensor> gradients;
};

Results run(const OpCase& op_case, const OpCase::Function& function, DType dtype) {
  std::vector<Variable> inputs;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    inputs.emplace_back(random_tensor(op_case.inputs[i], dtype, 1 + i, op_case.spread), true);
  }
  const std::vector<Variable> outputs = function(inputs);
  backward(project(outputs));
  Results results;
  for (const Variable& output : outputs) results.values.push_back(output.value());
  for (const Variable& input : inputs) results.gradients.push_back(input.grad());
  return results;
}

double largest(const Tensor& x) {
  double most = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x.at(i)));
  return most;
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t t = 0; t < got.size(); ++t) {
    ASSERT_EQ(got[t].size(), wanted[t].size());
    const double scale = std::max(1.0, largest(wanted[t]));
    for (std::int64_t i = 0; i < got[t].size(); ++i) {
      ASSERT_NEAR(got[t].at(i) / scale, wanted[t].at(i) / scale, tolerance) << what << " " << t << ", element " << i;
    }
  }
}

class OpCases : public testing::TestWithParam<OpCase> {};
class FusedOpCases : public testing::TestWithParam<OpCase> {};  // those that have a composed form

TEST_P(OpCases, GradientEqualsFiniteDifferences) {
  const GradCheckResult result = check_case(GetParam(), GetParam().fused);
  EXPECT_FALSE(result.vacuous());
  EXPECT_LE(result.error(), 1e-6) << result.worst;
}

TEST_P(FusedOpCases, ComposedGradientEqualsFiniteDifferences) {
  const GradCheckResult result = check_case(GetParam(), GetParam().composed);
  EXPECT_FALSE(result.vacuous());
  EXPECT_LE(result.error(), 1e-6) << result.worst;
}

TEST_P(OpCases, FloatEqualsDouble) {
  const Results f32 = run(GetParam(), GetParam().fused, DType::kF32);
  const Results f64 = run(GetParam(), GetParam().fused, DType::kF64);
  expect_near(f32.values, f64.values, 2e-6, "value");
  expect_near(f32.gradients, f64.gradients, 5e-6, "gradient");
}

TEST_P(FusedOpCases, FusedEqualsComposed) {
  const Results fused = run(GetParam(), GetParam().fused, DType::kF64);
  const Results composed = run(GetParam(), GetParam().composed, DType::kF64);
  expect_near(fused.values, composed.values, 1e-13, "value");
  expect_near(fused.gradients, composed.gradients, 1e-12, "gradient");
}

std::string test_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name;
  for (const char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::vector<OpCase> fused_cases() {
  std::vector<OpCase> cases;
  std::copy_if(op_cases().begin(), op_cases().end(), std::back_inserter(cases),
               [](const OpCase& c) { return bool(c.composed); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, OpCases, testing::ValuesIn(op_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(All, FusedOpCases, testing::ValuesIn(fused_cases()), test_name);

}  // namespace

void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

}  // namespace gau
