// Sums the gradients of a step's virtual shards along one binary tree, whoever computes them.
//
// Floating-point sums depend on their order. With V shards (a power of two) added as ((0+1)+(2+3))+((4+5)+(6+7)), a rank that
// holds a contiguous part of them holds a subtree, so any power-of-two number of ranks gives the same bits
// (gradient_exchange.h adds the rest of the tree). Adding works like counting in binary: level l holds the sum of 2^l shards
// until its twin arrives, so at most log2(V) buffers exist. Every second shard leaves its gradient where level 0 is, and the
// others start all the sums that they complete, in one pass. Gradients are added in pieces, as backward finishes them.
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
  /// These elements of the shard's gradient are final there. Of the last shard, those of `gradient` become the total.
  void add(const Tensor& gradient, Range elements);
  /// Every element of the shard was added: on to the next, after the last one to the first of another sum.
  void finish_shard() { finished_ = (finished_ + 1) % shards_; }

 private:
  Tensor& level(std::size_t index, const Tensor& like);

  std::int64_t shards_;
  std::int64_t finished_ = 0;
  std::vector<Tensor> levels_;  ///< kept from step to step: a buffer is made once
  Tensor partial_;              ///< sums on their way up, of a few elements at a time
};

}  // namespace gau
