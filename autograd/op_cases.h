// One list of cases of every op, walked by several suites: gradients in double, float against double, fused against composed,
// one thread against many, and `gau gradcheck`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/grad_check.h"
#include "autograd/variable.h"

namespace gau {

struct OpCase {
  using Function = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

  std::string name;
  std::vector<Shape> inputs;
  /// The op; constants inside (tables, factors) follow the type of the first input.
  Function fused;
  /// The same out of small ops; empty when the op is small itself.
  Function composed;
  /// Standard deviation of the random inputs.
  double spread = 1;
};

const std::vector<OpCase>& op_cases();

/// Standard normal numbers times `spread`, a function of (seed, element): the same values in f32 and f64 up to rounding.
Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed, double spread = 1);

/// f64 [1]: the sum of all outputs, each element under a fixed random weight, so that no error cancels.
Variable project(const std::vector<Variable>& outputs);

/// The gradient check of one case, fused or composed.
GradCheckResult check_case(const OpCase& op_case, const OpCase::Function& function);

}  // namespace gau
