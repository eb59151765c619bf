// Temperature laws: what multiplies the logits, computed in double on the host (docs/methods.md).
#pragma once

#include <cstdint>

#include "layers/method.h"

namespace gau {

/// The factor on the logits of a row that sees `keys` valid keys.
/// - none 1; softmax_plus ln(max(keys, 16)) / ln(base, 512 by default); infoscale sqrt(1 − keys^(−2/d)) / sqrt(1 −
/// train^(−2/d));
///   logn max(1, ln keys / ln train) (`clip=0`: without the max); `infoscale:clip=1` is max(1, …).
/// - ssmax: ln keys (the learned s of the layer is a variable of the graph).
/// - calibrated and scale-invariant 1: theirs are factors by layer and by distance, which the planner applies.
/// - `train` is the law's own `train` value when it has one, else train_length.
/// keys = 0 gives 1. Throws Error(kUsage) when the law needs a training length (above 1) and has none.
double temperature(const LawTerm& law, std::int64_t keys, std::int64_t train_length, std::int64_t key_size);

}  // namespace gau
