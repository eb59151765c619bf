#include "autograd/grad_check.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"

namespace gau {

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
  double largest_difference = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t size = inputs[i].size();
    const std::int64_t stride = std::max<std::int64_t>(1, size / std::max<std::int64_t>(1, most));
    for (std::int64_t element = 0; element < size; element += stride) {
      const double numeric = (value_at(i, element, step) - value_at(i, element, -step)) / (2 * step);
      const double analytic = leaves[i].grad().defined() ? leaves[i].grad().at(element) : 0;
      // Written so that a NaN counts as the worst difference there is.
      const double difference = std::abs(analytic - numeric);
      if (!(difference <= largest_difference)) {
        largest_difference = std::isnan(difference) ? INFINITY : difference;
        result.worst = fmt::format("input {}, element {}: {:.9g} analytic, {:.9g} numeric", i, element, analytic, numeric);
      }
      result.largest = std::max(result.largest, std::abs(numeric));
      ++result.checked;
    }
  }
  result.error = result.largest > 0 ? largest_difference / result.largest : (largest_difference > 0 ? INFINITY : 0);
  return result;
}

}  // namespace gau
