// AttentionPlan: what a layer's attention is, as plain data. Every method of length extrapolation fills one; kernels read it
// and never see a method's name.
//
// The logit of query i and key j is  a(|Δ|) · q_r(i) · k_r(j) + m(|Δ|) + bias(i, j)  for visible pairs, where r is the region
// of the pair, q_r, k_r are q and k under that region's rotation, and a = 1, m = 0 unless the plan has a distance law. Scales
// (1/√d, cosine s, temperature) are folded into q before. Distance is Δ = i - j: positive when the key is on the left.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "framework/tensor.h"

namespace gau {

/// Cosines and sines of one rotation, each [P, D/2] in the type of q and k: row p is used for position p (P = 1: for every
/// position). Undefined: no rotation. [B, L, D/2] when each sample has positions of its own.
struct RotaryTable {
  Tensor cos;
  Tensor sin;
  bool defined() const { return cos.defined(); }
};

/// One region's rotation of queries and of keys.
struct RegionRotation {
  RotaryTable q;
  RotaryTable k;
};

enum class Region { kNear, kLeft, kRight };

struct AttentionPlan {
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  // --- who sees whom: |Δ| ≤ window, or the key is a sink (j < sinks), or the row sees all (i < rows)
  std::int64_t window = kUnlimited;
  std::int64_t sinks = 0;
  std::int64_t rows = 0;
  bool mask_diagonal = false;  ///< a token does not see itself

  // --- rotation: pairs with |Δ| < near_limit are near; beyond, keys on the left and on the right have their own rotation
  std::int64_t near_limit = kUnlimited;
  RegionRotation near;
  RegionRotation left;
  RegionRotation right;

  // --- additive bias -slope · |Δ|, by side (ALiBi); never scaled
  double slope_left = 0;
  double slope_right = 0;

  // --- a law of the distance (scale-invariant attention): a and m at |Δ| = 0 … L - 1, or both empty
  std::vector<double> distance_scale;
  std::vector<double> distance_shift;

  /// [B, L] in the type of q: what row i of q is multiplied by (1/√d or cosine s, times the temperature).
  Tensor row_factor;
  /// An upper bound of |q · k| over all pairs, or infinity when none is known (cosine attention knows it).
  double logit_bound = std::numeric_limits<double>::infinity();

  /// The smallest weights of a row that together are at most `skip` of its largest may be taken as 0. 0 computes all.
  double skip = default_skip(DType::kF32);

  /// What a sum in this type cannot notice.
  static constexpr double default_skip(DType dtype) { return dtype == DType::kF64 ? 0x1p-53 : 0x1p-24; }

  bool visible(std::int64_t i, std::int64_t j) const {
    if (mask_diagonal && i == j) return false;
    const std::int64_t distance = i < j ? j - i : i - j;
    return distance <= window || j < sinks || i < rows;
  }
  Region region(std::int64_t i, std::int64_t j) const {
    const std::int64_t delta = i - j;
    if ((delta < 0 ? -delta : delta) < near_limit) return Region::kNear;
    return delta > 0 ? Region::kLeft : Region::kRight;
  }
  double bias(std::int64_t i, std::int64_t j) const {
    const std::int64_t delta = i - j;
    return delta > 0 ? -slope_left * static_cast<double>(delta) : slope_right * static_cast<double>(delta);
  }
  bool has_far() const { return near_limit != kUnlimited; }
  bool has_distance_law() const { return !distance_scale.empty(); }
  bool has_bias() const { return slope_left != 0 || slope_right != 0; }
  /// True when every row sees every key.
  bool sees_all(std::int64_t length) const { return !mask_diagonal && window >= length - 1; }
};

/// How a row of z becomes a row of q or of k: rotate(factor · normalise(γ ⊙ z)), once for each table.
struct HeadTransform {
  Tensor gamma;                     ///< [D]
  bool normalize = false;           ///< as normalize_rows; otherwise left as it is
  Tensor factor;                    ///< a constant for each row; undefined: 1
  Tensor positions;                 ///< i32 [B, R]; undefined: row r is at r; -1: not rotated
  std::vector<RotaryTable> tables;  ///< one for each output; an undefined one does not rotate
};

}  // namespace gau
