// Positions that training gives to the tokens of a sample, for the methods that train on longer contexts than they see.
//
// Both are functions of (seed, epoch, sample) alone, like every random number here.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/method.h"

namespace gau {

/// PoSE (arXiv 2309.10400): a sample of L tokens is two chunks. The first has `first` tokens at positions 0, 1, …; the positions
/// of the second go on after `skip` more.
struct PoseSplit {
  std::int64_t first = 1;  ///< 1 … max(1, L/2)
  std::int64_t skip = 0;   ///< 0 … target - L
};
PoseSplit pose_split(std::int64_t target, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::int64_t length);

/// The positions of one sample of `length` tokens: PoSE's for `pose`, `length` distinct positions below the target in ascending
/// order for `random` (arXiv 2305.16843), 0, 1, 2, … for every other term. The term is resolved: it has its target; throws
/// Error(kUsage) when that is missing or below `length`.
std::vector<double> training_positions(const PositionTerm& term, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                       std::int64_t length);

}  // namespace gau
