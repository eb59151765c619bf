#include "train/gradient_tree.h"

#include "framework/kernels.h"

namespace gau {

void GradientTree::add(Tensor gradient) {
  std::size_t level = 0;
  for (std::int64_t full = added_; full & 1; full >>= 1) kernels::add(levels_[level++], gradient, gradient);
  added_ = (added_ + 1) % shards_;
  if (added_ == 0) return;
  if (levels_.size() == level) levels_.push_back(Tensor::empty(gradient.shape(), gradient.dtype()));
  kernels::convert(gradient, levels_[level]);
}

}  // namespace gau
