// Sums the gradients of a step's virtual shards along one binary tree, whoever computes them.
//
// Floating-point sums depend on their order. With V shards (a power of two) added as ((0+1)+(2+3))+((4+5)+(6+7)), a rank that
// holds a contiguous part of them holds a subtree, so any power-of-two number of ranks gives the same bits
// (gradient_exchange.h adds the rest of the tree). Adding works like counting in binary: level l holds the sum of 2^l shards
// until its twin arrives, so at most log2(V) buffers exist. Every second shard leaves its gradient where level 0 is, and the
// others start all the sums that they complete, in one pass. The last shard can be added in pieces, as backward finishes them.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/tensor.h"
#include "train/bucket_plan.h"

namespace gau {

class GradientTree {
 public:
  /// `shards` is a power of two.
  explicit GradientTree(std::int64_t shards) : shards_(shards) {}

  /// Where the next shard's gradient belongs: into `gradient`, or into a buffer of this size and type that the tree keeps.
  Tensor next(const Tensor& gradient);
  /// The next shard, any but the last, has left its gradient there.
  void add(const Tensor& gradient);
  /// These elements of `gradient`, which holds the last shard's, become the total of all shards.
  void finish(const Tensor& gradient, Range elements);
  /// Every element of the last shard was finished: the next shard is the first of another sum.
  void reset() { added_ = 0; }

 private:
  /// to = levels[count - 1] + (… + (levels[0] + gradient)) over these elements.
  void add_levels(std::size_t count, const Tensor& gradient, const Tensor& to, Range elements);
  Tensor& level(std::size_t index, const Tensor& like);

  std::int64_t shards_;
  std::int64_t added_ = 0;
  std::vector<Tensor> levels_;  ///< kept from step to step: a buffer is made once
  Tensor partial_;              ///< sums on their way up, of a few elements at a time
};

}  // namespace gau
