#include "train/gradient_tree.h"

#include <algorithm>
#include <bit>

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
  const bool first_of_two = finished_ % 2 == 0 && shards_ > 1;
  return first_of_two ? level(0, gradient) : gradient;
}

// The sum grows from level to level: of a shard and its twin, of these two and theirs.
void GradientTree::add(const Tensor& gradient, Range elements) {
  const auto sums = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(finished_)));
  if (sums == 0) return;
  const Tensor& to = finished_ + 1 == shards_ ? gradient : level(sums, gradient);
  if (!partial_.defined()) partial_ = Tensor::empty({kPieceElements}, gradient.dtype());
  for (std::int64_t begin = elements.begin; begin < elements.end; begin += kPieceElements) {
    const Shape shape{std::min(kPieceElements, elements.end - begin)};
    Tensor part = gradient.segment(begin, shape);
    for (std::size_t l = 0; l < sums; ++l) {
      const Tensor sum = l + 1 == sums ? to.segment(begin, shape) : partial_.segment(0, shape);
      kernels::add(levels_[l].segment(begin, shape), part, sum);
      part = sum;
    }
  }
}

}  // namespace gau
