// Initial weights: truncated normal, cut at two standard deviations, std = 1.13684723 / sqrt(fan) · layers^(-1/3)
// (kexue.fm 8990: the constant restores unit variance after the cut, the power of the depth lets training start without
// warm-up).
#pragma once

#include <cstdint>

#include "framework/random.h"
#include "framework/tensor.h"
#include "layers/model_config.h"

namespace gau {

/// The standard deviation of the uncut normal; fan is the input size of a kernel, H for embeddings.
double initial_std(std::int64_t fan, std::int64_t layers);

/// Fills `out` (f32 or f64): element i is a function of (key, i) alone, rounded to float in both types, so that a model in
/// double starts where the one in float does.
void fill_truncated_normal(Tensor out, double std, const RandomKey& key);
/// γ of q or of k by config.init_gamma. The default is random signs for cosine layers that rotate: with γ = 1 q and k are the
/// same vector, every cosine with itself is 1, and with s ≥ 16 each token sees itself alone (docs/methods.md). Ones elsewhere.
void initialize_gamma(Tensor gamma, const AttentionConfig& config, bool rotates, const RandomKey& key);

}  // namespace gau
