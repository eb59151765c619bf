#include "autograd/grad_check.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"

namespace gau {

void GradCheckResult::compare(double analytic, double numeric, const std::string& where) {
  const double difference = std::abs(analytic - numeric);
  if (!(difference <= largest_difference)) {
    largest_difference = std::isnan(difference) ? INFINITY : difference;
    worst = fmt::format("{}: {:.9g} analytic, {:.9g} numeric", where, analytic, numeric);
  }
  largest = std::max(largest, std::abs(numeric));
  ++checked;
}

double GradCheckResult::error() const {
  if (largest_difference == 0) return 0;
  return largest > 0 ? largest_difference / largest : INFINITY;
}

GradCheckResult check_gradients(const std::function<Variable(const std::vector<Variable>&)>& function,
                                const std::vector<Tensor>& inputs, std::int64_t most, double step) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) {
    check(input.dtype() == DType::kF64, ExitCode::kData, "gradient check: inputs must be f64, not {}", name_of(input.dtype()));
    leaves.emplace_back(input.clone(), true);
  }
  backward(function(leaves));

  const auto value_at = [&](std::size_t which, std::int64_t element, double shift) {
    NoGrad no_grad;
    std::vector<Variable> moved;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor copy = i == which ? inputs[i].clone() : inputs[i];
      if (i == which) copy.data<double>()[element] += shift;
      moved.emplace_back(copy);
    }
    return function(moved).value().item();
  };

  GradCheckResult result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t size = inputs[i].size();
    const std::int64_t stride = std::max<std::int64_t>(1, size / std::max<std::int64_t>(1, most));
    for (std::int64_t element = 0; element < size; element += stride) {
      const double numeric = (value_at(i, element, step) - value_at(i, element, -step)) / (2 * step);
      const double analytic = leaves[i].grad().defined() ? leaves[i].grad().at(element) : 0;
      result.compare(analytic, numeric, fmt::format("input {}, element {}", i, element));
    }
  }
  return result;
}

}  // namespace gau
