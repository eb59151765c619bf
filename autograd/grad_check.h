// Gradients against finite differences, in double.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace gau {

struct GradCheckResult {
  /// max |analytic - numeric| / max |numeric| over all elements checked.
  double error() const;
  /// max |numeric|: a check of gradients that are all about zero proves nothing.
  double largest = 0;
  std::int64_t checked = 0;
  std::string worst;              ///< "input 1, element 17: 0.25 analytic, 0.3 numeric"
  double largest_difference = 0;  ///< max |analytic - numeric|

  /// Takes one element's two values into account; a NaN counts as the worst difference there is.
  void compare(double analytic, double numeric, const std::string& where);

  bool vacuous() const { return largest < 1e-6; }
  bool passed(double tolerance) const { return !vacuous() && error() <= tolerance; }
};

/// Central differences (f(x+h) - f(x-h)) / 2h of a scalar function (f64 [1]) of f64 inputs, every element of every input, or a
/// fixed sample of about `most` elements of each when it has more.
GradCheckResult check_gradients(const std::function<Variable(const std::vector<Variable>&)>& function,
                                const std::vector<Tensor>& inputs, std::int64_t most = 200, double step = 1e-5);

}  // namespace gau
