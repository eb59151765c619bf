// Rotary position embedding: the frequencies of each way to stretch it, and tables of cosines and sines.
//
// Pair i of D/2 turns by position · f_i, f_i = 10000^(-2i/D). Angles are computed in double and only then rounded to the type
// of q and k: in float, positions of a few thousand already lose the high frequencies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/attention_plan.h"

namespace gau {

inline constexpr double kRopeBase = 10000;

/// Radians that each of the D/2 pairs turns by in one position, and what cosine and sine are multiplied by.
struct Spectrum {
  std::vector<double> frequencies;
  double magnitude = 1;
};

/// f_i = base^(-2i/D).
Spectrum rope_spectrum(std::int64_t key_size, double base = kRopeBase);
/// Position interpolation: positions divided by `factor` (arXiv 2306.15595).
Spectrum pi_spectrum(std::int64_t key_size, double factor);
/// NTK-aware: base · factor^(D/(D-2)), so that the slowest pair is interpolated by `factor` exactly; D > 2.
Spectrum ntk_spectrum(std::int64_t key_size, double factor);
/// YaRN (arXiv 2309.00071): pairs that turn at least beta_fast times within `train` keep their frequency, those that turn at
/// most beta_slow times are interpolated, a ramp linear in the index of the pair between them; magnitude 0.1 ln(factor) + 1.
Spectrum yarn_spectrum(std::int64_t key_size, double train, double factor, double beta_fast, double beta_slow);

/// Cosines and sines of `positions` in `dtype` (f32 or f64), shaped `shape` + [D/2]; shape.size() = positions.size().
RotaryTable rotary_table(std::span<const double> positions, const Shape& shape, const Spectrum& spectrum, DType dtype);

}  // namespace gau
