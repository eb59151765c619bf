#include "layers/flat_parameters.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau {

void FlatParameters::add(const std::string& name, const Shape& shape) {
  check(!values_.defined(), ExitCode::kData, "parameter {}: added after the buffers were made", name);
  check(!contains(name), ExitCode::kData, "parameter {}: added twice", name);
  list_.push_back({name, shape, size_, {}});
  size_ += shape.size();
}

void FlatParameters::allocate(DType dtype) {
  values_ = Tensor::zeros({size_}, dtype);
  gradients_ = Tensor::zeros({size_}, dtype);
  for (Parameter& parameter : list_) {
    parameter.variable =
        Variable(values_.segment(parameter.offset, parameter.shape), gradients_.segment(parameter.offset, parameter.shape));
  }
}

const Parameter& FlatParameters::find(const std::string& name) const {
  const auto found = std::find_if(list_.begin(), list_.end(), [&](const Parameter& p) { return p.name == name; });
  check(found != list_.end(), ExitCode::kData, "parameter {}: this model has none of that name", name);
  return *found;
}

bool FlatParameters::contains(const std::string& name) const {
  return std::any_of(list_.begin(), list_.end(), [&](const Parameter& p) { return p.name == name; });
}

void FlatParameters::zero_gradients() {
  restart_gradients(gradients_);
  settle_gradients();
}

void FlatParameters::restart_gradients(const Tensor& flat) {
  for (Parameter& parameter : list_) parameter.variable.restart_grad(flat.segment(parameter.offset, parameter.shape));
}

void FlatParameters::settle_gradients() {
  for (Parameter& parameter : list_) parameter.variable.settle_grad();
}

}  // namespace gau
