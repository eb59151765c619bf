// The loops over elements are kernels of the backend; here are the decisions between them: which kernel, over which segment,
// at what rate.
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau {

Optimizer::Optimizer(const OptimConfig& optim, FlatParameters& parameters) : optim_(optim), parameters_(parameters) {
  const DType dtype = parameters.values().dtype();
  first_ = Tensor::zeros({parameters.size()}, dtype);
  second_ = Tensor::zeros({parameters.size()}, dtype);
  if (optim.name == OptimizerKind::kLamb) update_ = Tensor::empty({parameters.size()}, dtype);
}

void Optimizer::apply(double learning_rate, double gradient_scale) {
  ++updates_;
  AdamStep step;
  step.learning_rate = learning_rate;
  step.beta1 = optim_.betas[0];
  step.beta2 = optim_.betas[1];
  step.epsilon = optim_.eps;
  step.weight_decay = optim_.weight_decay;
  step.gradient_scale = gradient_scale;
  step.step = updates_;
  if (optim_.name == OptimizerKind::kLamb)
    apply_lamb(step);
  else
    kernels::adamw(step, parameters_.gradients(), parameters_.values(), first_, second_);
}

void Optimizer::apply_lamb(const AdamStep& step) {
  kernels::lamb_update(step, parameters_.gradients(), parameters_.values(), first_, second_, update_);
  for (const Parameter& parameter : parameters_.list()) {
    Tensor value = parameters_.values().segment(parameter.offset, parameter.shape);
    const Tensor update = update_.segment(parameter.offset, parameter.shape);
    const double weight_norm = std::sqrt(kernels::sum_of_squares(value));
    const double update_norm = std::sqrt(kernels::sum_of_squares(update));
    const double trust = weight_norm > 0 && update_norm > 0 ? weight_norm / update_norm : 1;
    kernels::apply_update(step.learning_rate * trust, update, value);
  }
}

void Optimizer::restore(std::int64_t updates, const Tensor& first, const Tensor& second) {
  for (const Tensor* moment : {&first, &second})
    check(moment->size() == first_.size() && moment->dtype() == first_.dtype(), ExitCode::kData,
          "optimizer state: {} elements of {} do not suit a model of {} elements of {}", moment->size(),
          name_of(moment->dtype()), first_.size(), name_of(first_.dtype()));
  updates_ = updates;
  first_ = first.reshaped({first.size()});
  second_ = second.reshaped({second.size()});
}

double gradient_norm(const FlatParameters& parameters) {
  double squares = 0;
  for (const Parameter& parameter : parameters.list())
    squares += kernels::sum_of_squares(parameters.gradients().segment(parameter.offset, parameter.shape));
  return std::sqrt(squares);
}

double clip_factor(double norm, double clip) { return clip == 0 ? 1 : std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace gau
