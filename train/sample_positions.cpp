// Joins the loader, which knows samples, with the methods, which know positions.
#include "train/sample_positions.h"

#include <algorithm>
#include <vector>

#include "layers/training_positions.h"

namespace gau {

std::function<std::int64_t(std::uint64_t, std::uint64_t)> first_chunk(const PositionTerm& term, const LoaderOptions& options) {
  if (term.kind != PositionKind::kPose) return {};
  const auto target = static_cast<std::int64_t>(term.numbers.at("target"));
  return [target, seed = options.seed, length = options.length](std::uint64_t epoch, std::uint64_t sample) {
    return pose_split(target, seed, epoch, sample, length).first;
  };
}

Tensor sample_positions(const PositionTerm& term, const Loader& loader, const MaskedBatch& batch) {
  if (term.kind != PositionKind::kPose && term.kind != PositionKind::kRandom) return {};
  const auto windows = static_cast<std::uint64_t>(loader.windows());
  Tensor positions = Tensor::empty(batch.ids.shape(), DType::kF64);
  double* out = positions.data<double>();
  for (std::int64_t b = 0; b < batch.ids.dim(0); ++b) {
    const std::uint64_t sample = batch.first_position + static_cast<std::uint64_t>(b);
    const std::vector<double> own = training_positions(term, loader.options().seed, sample / windows, sample, batch.ids.dim(1));
    out = std::copy(own.begin(), own.end(), out);
  }
  return positions;
}

}  // namespace gau
