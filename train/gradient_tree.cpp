#include "train/gradient_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "framework/kernels.h"

namespace gau {

namespace {
// A piece of a sum on its way up stays in the second-level caches of two threads.
constexpr std::int64_t kPieceElements = 1 << 17;
}  // namespace

Tensor& GradientTree::level(std::size_t index, const Tensor& like) {
  if (levels_.size() == index) levels_.push_back(Tensor::empty(like.shape(), like.dtype()));
  return levels_[index];
}

Tensor GradientTree::next(const Tensor& gradient) {
  const bool odd = added_ % 2 == 1;
  return odd || shards_ == 1 ? gradient : level(0, gradient);
}

void GradientTree::add(const Tensor& gradient) {
  assert(added_ + 1 < shards_);
  const auto complete = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(added_++)));
  if (complete > 0) add_levels(complete, gradient, level(complete, gradient), {0, gradient.size()});
}

void GradientTree::finish(const Tensor& gradient, Range elements) {
  assert(added_ + 1 == shards_);
  if (shards_ > 1) add_levels(levels_.size(), gradient, gradient, elements);
}

void GradientTree::add_levels(std::size_t count, const Tensor& gradient, const Tensor& to, Range elements) {
  if (!partial_.defined()) partial_ = Tensor::empty({kPieceElements}, gradient.dtype());
  for (std::int64_t begin = elements.begin; begin < elements.end; begin += kPieceElements) {
    const Shape shape{std::min(kPieceElements, elements.end - begin)};
    Tensor part = gradient.segment(begin, shape);
    for (std::size_t l = 0; l < count; ++l) {
      const Tensor sum = l + 1 == count ? to.segment(begin, shape) : partial_.segment(0, shape);
      kernels::add(levels_[l].segment(begin, shape), part, sum);
      part = sum;
    }
  }
}

}  // namespace gau
