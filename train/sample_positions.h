// What PoSE and randomised positions do to the samples of training: a function of (seed, epoch, place in the order of
// training).
#pragma once

#include <cstdint>
#include <functional>

#include "data/loader.h"
#include "layers/method.h"

namespace gau {

/// LoaderOptions::first_chunk for `pose`: the same first chunk that its positions have. Empty for other methods. The term is
/// resolved.
std::function<std::int64_t(std::uint64_t, std::uint64_t)> first_chunk(const PositionTerm& term, const LoaderOptions& options);

/// f64 [B, L]: training_positions() of each sample of a batch that `loader` made, for `pose` and `random`; undefined for other
/// methods.
Tensor sample_positions(const PositionTerm& term, const Loader& loader, const MaskedBatch& batch);

}  // namespace gau
