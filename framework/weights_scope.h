// Weights that nobody changes for a while, so that products may keep copies of them.
//
// A step multiplies by each weight sixteen times (eight shards, forward and backward) and changes it once. Rounded to the type
// of the products and laid out as these read it, a weight saves every one of them that work. A scope that a caller opens,
// rather than a cache that watches for writes: whoever changes parameters does so outside, and nothing outlives the scope.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "framework/dtype.h"
#include "framework/tensor.h"

namespace gau {

class WeightsScope {
 public:
  /// While it lives no element of `weights` changes, and products of this thread whose right operand lies inside it may keep
  /// copies of that operand. Scopes nest; the copies die with theirs.
  explicit WeightsScope(Tensor weights);
  ~WeightsScope();
  WeightsScope(const WeightsScope&) = delete;
  WeightsScope& operator=(const WeightsScope&) = delete;

  /// A matrix inside the weights, and the type of the products that read it.
  struct Key {
    const void* first = nullptr;  ///< its first element
    std::int64_t rows = 0, cols = 0, row_stride = 0;
    bool transposed = false;
    DType type = DType::kF32;
    auto operator<=>(const Key&) const = default;
  };

  /// For backends: the scope of this thread whose weights hold `operand`, or null.
  static WeightsScope* of(const Tensor& operand);
  /// For backends: what is kept under a key, null at first. What it is the backend knows.
  std::shared_ptr<const void>& kept(const Key& key) { return kept_[key]; }

 private:
  bool holds(const Tensor& operand) const;

  Tensor weights_;
  WeightsScope* outer_;
  std::map<Key, std::shared_ptr<const void>> kept_;
};

}  // namespace gau
