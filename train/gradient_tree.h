// Sums the gradients of a step's virtual shards along one binary tree, whoever computes them.
//
// Floating-point sums depend on their order. With V shards (a power of two) added as ((0+1)+(2+3))+((4+5)+(6+7)), a rank that
// holds a contiguous part of them holds a subtree, so any power-of-two number of ranks gives the same bits. Adding works like
// counting in binary: level l holds the sum of 2^l shards until its twin arrives, so at most log2(V) buffers exist.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/tensor.h"

namespace gau {

class GradientTree {
 public:
  /// `shards` is a power of two.
  explicit GradientTree(std::int64_t shards) : shards_(shards) {}

  /// Adds the next shard's gradient, which lies in `gradient` and may be overwritten. After the last one `gradient` holds the
  /// total.
  void add(Tensor gradient);

 private:
  std::int64_t shards_;
  std::int64_t added_ = 0;
  std::vector<Tensor> levels_;  ///< kept from step to step: a buffer is made once
};

}  // namespace gau
