// Context: what a forward pass needs to know besides its inputs. Passed down; modules hold no mode of their own.
#pragma once

#include <cstdint>

#include "framework/random.h"
#include "framework/rank_group.h"

namespace gau {

struct Context {
  bool training = false;  ///< dropout is active
  std::uint64_t seed = 0;
  std::uint64_t step = 0;          ///< optimizer step, part of every dropout key
  std::uint64_t first_sample = 0;  ///< global index, within the step, of the batch's first sequence
  double cosine_scale = 0;         ///< above 0: replaces s (warm-up of s)
  RankGroup group;                 ///< ranks that share each sequence: all of them call with the same inputs
  bool composed = false;           ///< use the composed forms of fused ops (tests, and paths without a fused form)

  /// Dropout of rate `rate` at (site, layer) for tensors whose rows are flat positions of sequences of `length`; inactive
  /// outside training.
  DropoutSpec dropout(double rate, Site site, std::int64_t layer, std::int64_t length, const Tensor& rows = {}) const {
    DropoutSpec spec;
    if (!training) return spec;
    spec.rate = rate;
    spec.key = RandomKey{seed, step, site, static_cast<std::uint32_t>(layer)};
    spec.first_sample = first_sample;
    spec.length = length;
    spec.rows = rows;
    return spec;
  }
};

}  // namespace gau
