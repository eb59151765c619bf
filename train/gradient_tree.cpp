#include "train/gradient_tree.h"

#include <cassert>

#include "framework/kernels.h"

namespace gau {

void GradientTree::add(Tensor gradient) {
  assert(added_ + 1 < shards_);
  std::size_t level = 0;
  for (std::int64_t full = added_; full & 1; full >>= 1) kernels::add(levels_[level++], gradient, gradient);
  ++added_;
  if (levels_.size() == level) levels_.push_back(Tensor::empty(gradient.shape(), gradient.dtype()));
  kernels::convert(gradient, levels_[level]);
}

void GradientTree::finish(Tensor gradient, Range elements) {
  assert(added_ + 1 == shards_);
  const Shape shape{elements.size()};
  Tensor part = gradient.segment(elements.begin, shape);
  for (const Tensor& level : levels_) kernels::add(level.segment(elements.begin, shape), part, part);
}

}  // namespace gau
