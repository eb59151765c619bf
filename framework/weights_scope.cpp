#include "framework/weights_scope.h"

#include <cstddef>
#include <functional>
#include <utility>

namespace gau {

namespace {
thread_local WeightsScope* innermost = nullptr;
}

WeightsScope::WeightsScope(Tensor weights) : weights_(std::move(weights)), outer_(innermost) { innermost = this; }
WeightsScope::~WeightsScope() { innermost = outer_; }

bool WeightsScope::holds(const Tensor& operand) const {
  const auto begin = [](const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); };
  const auto end = [&](const Tensor& tensor) { return begin(tensor) + tensor.bytes(); };
  return !std::less<>()(begin(operand), begin(weights_)) && !std::less<>()(end(weights_), end(operand));
}

WeightsScope* WeightsScope::of(const Tensor& operand) {
  WeightsScope* scope = innermost;
  while (scope && !scope->holds(operand)) scope = scope->outer_;
  return scope;
}

}  // namespace gau
