// One row of attention weights at a time: from logits to probabilities, and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "framework/cpu/attention_blocks.h"
#include "framework/cpu/vector_math.h"

namespace gau::cpu {

/// A logit that no softmax notices, far enough from overflow that differences of two stay finite.
template <class T>
constexpr T kHidden = T(-1e30);

/// Adds the bias to the logits of the row at position i, from the range's first key on, and hides the keys that it does not
/// see.
template <class T>
void mask_keys(const KeyRange& range, const AttentionPlan& plan, const std::int32_t* mask, std::int64_t i, T* row) {
  const std::int64_t first = range.first, end = range.first + range.count;
  if (plan.has_bias()) {
    for (std::int64_t j = first; j < end; ++j) row[j - first] += static_cast<T>(plan.bias(i, j));
  }
  if (i >= plan.rows && plan.window < AttentionPlan::kUnlimited) {
    const std::int64_t from = std::max(first, std::min(plan.sinks, end));
    const std::int64_t low = std::min(std::max(i - plan.window, from), end);
    const std::int64_t high = std::max(std::min(i + plan.window + 1, end), low);
    for (std::int64_t j = from; j < low; ++j) row[j - first] = kHidden<T>;
    for (std::int64_t j = std::max(high, from); j < end; ++j) row[j - first] = kHidden<T>;
  }
  if (plan.mask_diagonal && i >= first && i < end) row[i - first] = kHidden<T>;
  if (mask) {
    for (std::int64_t j = first; j < end; ++j) row[j - first] = mask[j] ? row[j - first] : kHidden<T>;
  }
}

template <class T>
void mask_row(const AttentionBlock& block, const AttentionPlan& plan, const std::int32_t* mask, std::int64_t i, T* logits) {
  for (const KeyRange& range : block.keys) mask_keys(range, plan, mask, i, logits + range.column);
}

/// x[j] = a(|Δ|) · x[j], plus m(|Δ|) with `shift`: the plan's law of the distance, on the row at position i.
template <class T>
void scale_by_distance(const AttentionBlock& block, const AttentionPlan& plan, std::int64_t i, bool shift, T* row) {
  for (const KeyRange& range : block.keys) {
    for (std::int64_t n = 0; n < range.count; ++n) {
      const std::size_t distance = static_cast<std::size_t>(std::abs(i - range.first - n));
      T& x = row[range.column + n];
      x *= static_cast<T>(plan.distance_scale[distance]);
      if (shift) x += static_cast<T>(plan.distance_shift[distance]);
    }
  }
}

/// What exp(logit - largest) is multiplied by: 1 / sum, or what makes it exp(logit - log_sum) of a known log_sum.
template <class T>
T weight_factor(T largest, T sum, const double* log_sum) {
  return log_sum ? static_cast<T>(std::exp(static_cast<double>(largest) - *log_sum)) : 1 / sum;
}

template <class T>
double log_sum_of(T largest, T sum) {
  return static_cast<double>(largest) + std::log(static_cast<double>(sum));
}

/// Softmax in place; returns ln Σ exp. With a known `log_sum` the weights are exp(logit - log_sum) instead. Sums run in sixteen
/// interleaved lanes, so they do not depend on anything but the width.
template <class T>
double softmax_row(T* row, std::int64_t width, const double* log_sum) {
  T largest = row[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < width; ++j) largest = std::max(largest, row[j]);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < width; ++j) {
    row[j] = vexp(row[j] - largest);
    sum += row[j];
  }
  const T factor = weight_factor(largest, sum, log_sum);
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) row[j] *= factor;
  return log_sum_of(largest, sum);
}

/// Columns whose largest logit decides together whether any of them is worth an exponential.
constexpr std::int64_t kPiece = 64;

constexpr std::int64_t pieces_of(std::int64_t width) { return (width + kPiece - 1) / kPiece; }

/// The largest logit of each piece, and of the row; NaN for the row when it has one.
template <class T>
T piece_maxima(const T* row, std::int64_t width, T* maxima) {
  T largest = row[0];
  int unordered = 0;
  for (std::int64_t begin = 0; begin < width; begin += kPiece) {
    const T* piece = row + begin;
    const std::int64_t count = std::min(kPiece, width - begin);
    T most = piece[0];
#pragma omp simd reduction(max : most) reduction(| : unordered)
    for (std::int64_t j = 0; j < count; ++j) {
      most = std::max(most, piece[j]);
      unordered |= piece[j] != piece[j];
    }
    maxima[begin / kPiece] = most;
    largest = std::max(largest, most);
  }
  return unordered ? std::numeric_limits<T>::quiet_NaN() : largest;
}

/// Thresholds that a row of long attention tries, from the largest down, each an eighth of the former.
constexpr int kThresholds = 6;

/// What may be left out of a row of `width` weights: half of `skip` times the largest in weights below `least` each, half in
/// those below the threshold that best() finds. All relative to the row's largest weight.
template <class T>
struct SkipThresholds {
  T least, cut;  ///< skip / 2n, and how far below the largest logit that is
  T tried[kThresholds];
  T half;

  SkipThresholds(double skip, std::int64_t width)
      : least(static_cast<T>(skip / 2 / static_cast<double>(width))), cut(std::log(least)), half(static_cast<T>(skip / 2)) {
    for (int k = kThresholds - 1; k >= 0; --k) tried[k] = k == kThresholds - 1 ? least : 8 * tried[k + 1];
  }
  /// The largest one tried of which below(k), the sum of the weights below it, is within the bound; else the least.
  template <class Below>
  T best(const Below& below) const {
    int k = 0;
    while (k < kThresholds - 1 && !(below(k) <= half)) ++k;
    return tried[k];
  }
};

/// Of one piece of weights: sums[k] += those below thresholds[k].
template <class T>
void sum_below(const T* piece, std::int64_t count, const T* thresholds, T* sums) {
  for (int k = 0; k < kThresholds; ++k) {
    const T threshold = thresholds[k];
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t j = 0; j < count; ++j) part += piece[j] < threshold ? piece[j] : T(0);
    sums[k] += part;
  }
}

/// softmax_row for long rows of which little matters. What is left out of a row is at most `skip` of its largest weight: half
/// of that in pieces whose weights are all below skip / 2n (n columns), which are left as they are and get active[piece] = 0,
/// to be read as zeros; the other half in weights below `threshold`, the largest one tried whose weights below it add up to no
/// more. `maxima` is room for a number a piece.
template <class T>
double softmax_pieces(T* row, std::int64_t width, double skip, const double* log_sum, T* maxima, std::uint8_t* active,
                      T& threshold) {
  const T largest = piece_maxima(row, width, maxima);
  const SkipThresholds<T> thresholds(skip, width);
  T below[kThresholds] = {};
  const std::int64_t pieces = pieces_of(width);
  std::int64_t silent = 0;
  for (std::int64_t p = 0; p < pieces; ++p) {
    active[p] = !(maxima[p] < largest + thresholds.cut);
    silent += !active[p];
  }
  // Where nearly every piece matters, so do most keys: no search for a larger threshold.
  const bool search = 4 * silent >= pieces;
  T sum = 0;
  for (std::int64_t begin = 0; begin < width; begin += kPiece) {
    if (!active[begin / kPiece]) continue;
    const std::int64_t count = std::min(kPiece, width - begin);
    T* piece = row + begin;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t j = 0; j < count; ++j) {
      piece[j] = vexp(piece[j] - largest);
      part += piece[j];
    }
    sum += part;
    if (search) sum_below(piece, count, thresholds.tried, below);
  }
  const T factor = weight_factor(largest, sum, log_sum);
  for (std::int64_t begin = 0; begin < width; begin += kPiece) {
    if (!active[begin / kPiece]) continue;
    const std::int64_t count = std::min(kPiece, width - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) row[begin + j] *= factor;
  }
  threshold = (search ? thresholds.best([&](int k) { return below[k]; }) : thresholds.least) * factor;
  return log_sum_of(largest, sum);
}

template <class T>
T dot_row(const T* a, const T* b, std::int64_t width) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < width; ++j) sum += a[j] * b[j];
  return sum;
}

}  // namespace gau::cpu
