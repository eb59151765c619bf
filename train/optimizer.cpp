// The loops over elements are kernels of the backend; here are the decisions between them: which kernel, over which segment,
// at what rate.
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/weights_scope.h"

namespace gau {

namespace {

Tensor part(const Tensor& flat, Range elements) { return flat.segment(elements.begin, {elements.size()}); }

}  // namespace

Optimizer::Optimizer(const OptimConfig& optim, FlatParameters& parameters, std::vector<Range> owned)
    : optim_(optim), parameters_(parameters), owned_(std::move(owned)) {
  const DType dtype = parameters.values().dtype();
  if (owned_.empty()) owned_.push_back({0, parameters.size()});
  std::int64_t elements = 0;
  for (const Range& range : owned_) elements += range.size();
  first_ = Tensor::zeros({elements}, dtype);
  second_ = Tensor::zeros({elements}, dtype);
  if (optim.name == OptimizerKind::kLamb) update_ = Tensor::empty({parameters.size()}, dtype);
}

void Optimizer::apply(double learning_rate, double gradient_scale, const Share& share) {
  check(WeightsScope::of(parameters_.values()) == nullptr, ExitCode::kData,
        "optimizer: parameters of an open WeightsScope must stay as they are; close it first");
  ++updates_;
  AdamStep step;
  step.learning_rate = learning_rate;
  step.beta1 = optim_.betas[0];
  step.beta2 = optim_.betas[1];
  step.epsilon = optim_.eps;
  step.weight_decay = optim_.weight_decay;
  step.gradient_scale = gradient_scale;
  step.step = updates_;
  optim_.name == OptimizerKind::kLamb ? apply_lamb(step, share) : apply_adamw(step, share);
}

void Optimizer::for_owned(const std::function<void(Range, Tensor, Tensor)>& update) {
  std::int64_t at = 0;
  for (const Range& range : owned_) {
    const Shape shape{range.size()};
    if (range.size() > 0) update(range, first_.segment(at, shape), second_.segment(at, shape));
    at += range.size();
  }
}

void Optimizer::apply_adamw(const AdamStep& step, const Share& share) {
  for_owned([&](Range range, Tensor first, Tensor second) {
    kernels::adamw(step, part(parameters_.gradients(), range), part(parameters_.values(), range), first, second);
  });
  if (share) share(parameters_.values());
}

void Optimizer::apply_lamb(const AdamStep& step, const Share& share) {
  for_owned([&](Range range, Tensor first, Tensor second) {
    kernels::lamb_update(step, part(parameters_.gradients(), range), part(parameters_.values(), range), first, second,
                         part(update_, range));
  });
  // The ratio of a tensor needs its whole update, so updates are exchanged and every rank takes the step.
  if (share) share(update_);
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
    check((moment->size() == parameters_.size() || moment->size() == first_.size()) && moment->dtype() == first_.dtype(),
          ExitCode::kData, "optimizer state: {} elements of {} do not suit a model of {} elements of {}", moment->size(),
          name_of(moment->dtype()), parameters_.size(), name_of(first_.dtype()));
  updates_ = updates;
  if (first.size() == first_.size()) {
    first_ = first.reshaped({first.size()});
    second_ = second.reshaped({second.size()});
    return;
  }
  for_owned([&](Range range, Tensor own_first, Tensor own_second) {
    kernels::convert(part(first, range), own_first);
    kernels::convert(part(second, range), own_second);
  });
}

double gradient_norm(const FlatParameters& parameters) {
  double squares = 0;
  for (const Parameter& parameter : parameters.list())
    squares += kernels::sum_of_squares(parameters.gradients().segment(parameter.offset, parameter.shape));
  return std::sqrt(squares);
}

double clip_factor(double norm, double clip) { return clip == 0 ? 1 : std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace gau
