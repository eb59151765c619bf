// The keys that matter to a strip of eight query rows, and their weights, without a matrix of logits.
//
// A key whose weight is below skip / 2n of the row's largest (n keys) is left out; all such keys together have no more than
// half of what may be left out. Whether a key can be one of the others shows in logits of bytes, whose error has a bound
// (byte_keys.h): those that can, a few in a hundred, get logits in full precision, and all that follows is decided and
// computed from these. So what is kept, and every bit of the result, does not depend on how coarse the first look was.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "framework/cpu/attention_logits.h"
#include "framework/cpu/byte_keys.h"
#include "framework/cpu/packed_keys.h"

namespace gau::cpu {

#if defined(__AVX512VNNI__)
template <class T>
using CoarseKeys = std::conditional_t<std::is_same_v<T, float>, ByteKeys, PackedKeys<T>>;
#else
template <class T>
using CoarseKeys = PackedKeys<T>;
#endif

template <class T>
class KeySearch {
 public:
  /// Of a plan without far regions, bias and law of the distance: there a logit is q · k, or hidden.
  KeySearch(const Attention& attention, const AttentionBlock& block, const CoarseKeys<T>& keys)
      : attention_(attention), plan_(attention.plan()), block_(block), keys_(keys), skip_(plan_.skip, block.width) {}

  /// Fills the strip of the block's rows [first, first + rows) with kept columns and their weights; ln Σ exp goes to
  /// log_sum_exp when it is given. False when more than half of the keys are kept, or nothing can be said.
  bool list(std::int64_t first, std::int64_t rows, Strip<T>& strip, double* log_sum_exp) {
    first_ = first;
    rows_ = rows;
    if (!keys_.finite() || !take_rows()) return false;
    choose(strip.columns);
    const Tensor& k = attention_.regions().front().k;
    const T* const keys = k.data<T>() + at_[0].sequence * k.dim(1) * k.dim(2);
    const auto row_of = [&](std::int64_t column) { return keys + block_.key_of(column) * k.dim(2); };
    dots(strip.columns, row_of, k.dim(2), rows, queries_of_strip(), k.dim(2), strip.weights);
    if (hides()) hide(strip);
    weigh(strip, log_sum_exp);
    return 2 * static_cast<std::int64_t>(strip.size()) <= block_.width;
  }

 private:
  static constexpr std::int64_t kSample = 16;
  static constexpr std::int64_t kTile = CoarseKeys<T>::kTileKeys;

  const T* queries_of_strip() const {
    const Tensor& q = attention_.regions().front().q;
    return q.data<T>() + (at_[0].sequence * q.dim(1) + at_[0].row) * q.dim(2);
  }

  // False where a row attends to all keys alike.
  bool take_rows() {
    low_ = std::numeric_limits<std::int64_t>::max();
    high_ = std::numeric_limits<std::int64_t>::min();
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      at_[r] = r < rows_ ? attention_.row(block_, first_ + r) : AttentionRow{0, 0, RowKind::kNothing, 0};
      if (at_[r].kind == RowKind::kUniform) return false;
      if (at_[r].kind == RowKind::kNothing) continue;
      low_ = std::min(low_, at_[r].position);
      high_ = std::max(high_, at_[r].position);
    }
    keys_.prepare(queries_of_strip(), rows_, queries_);
    return true;
  }

  // Whether anything is hidden from any row.
  bool hides() const {
    return plan_.mask_diagonal || plan_.window != AttentionPlan::kUnlimited || attention_.geometry().mask(at_[0].sequence);
  }

  // Whether some key of [begin, end) is hidden from a row.
  bool hides(std::int64_t begin, std::int64_t end) const {
    if (plan_.mask_diagonal && low_ < end && high_ >= begin) return true;
    if (plan_.window != AttentionPlan::kUnlimited && end > plan_.sinks && high_ >= plan_.rows &&
        (begin < high_ - plan_.window || end > low_ + plan_.window + 1)) {
      return true;
    }
    const std::int32_t* const mask = attention_.geometry().mask(at_[0].sequence);
    return mask && std::find(mask + begin, mask + end, 0) != mask + end;
  }

  // Coarse logits of a tile's keys in the range; others are hidden.
  void look(const KeyRange& range, std::int64_t tile, T* logits) const {
    keys_.multiply(at_[0].sequence, tile, queries_, logits);
    const std::int64_t begin = std::max(range.first, tile * kTile),
                       end = std::min(range.first + range.count, (tile + 1) * kTile);
    const bool hidden = hides(begin, end);
    if (!hidden && end - begin == kTile) return;
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      T* const row = logits + r * kTile;
      std::fill(row, row + begin - tile * kTile, kHidden<T>);
      std::fill(row + end - tile * kTile, row + kTile, kHidden<T>);
      if (!hidden || at_[r].kind == RowKind::kNothing) continue;
      mask_keys({begin, end - begin, 0}, plan_, attention_.geometry().mask(at_[r].sequence), at_[r].position,
                row + begin - tile * kTile);
    }
  }

  // Columns of the keys that may matter to some row, ascending. The bound of a row rises with the largest logit seen so far;
  // one tile in kSample comes first, so that it starts high.
  void choose(std::vector<std::int32_t>& columns) {
    columns.clear();
    if (low_ > high_) return;  // no row sees anything
    T logits[kStripRows * kTile], most[kStripRows][kLanes<T>];
    std::fill_n(most[0], kStripRows * kLanes<T>, kHidden<T>);
    for (const KeyRange& range : block_.keys) {
      for (std::int64_t tile = range.first / kTile; tile * kTile < range.first + range.count; tile += kSample) {
        look(range, tile, logits);
        raise(logits, most);
      }
    }
    set_bounds(most);
    std::int64_t since = 0;
    for (const KeyRange& range : block_.keys) {
      for (std::int64_t tile = range.first / kTile; tile * kTile < range.first + range.count; ++tile) {
        look(range, tile, logits);
        raise(logits, most);
        take(range, tile, logits, columns);
        if (++since % kSample == 0) set_bounds(most);
      }
    }
  }

  static void raise(const T* logits, T (*most)[kLanes<T>]) {
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      for (std::int64_t v = 0; v < kTile; v += kLanes<T>) {
#pragma omp simd
        for (std::int64_t l = 0; l < kLanes<T>; ++l) most[r][l] = std::max(most[r][l], logits[r * kTile + v + l]);
      }
    }
  }

  // A key whose coarse logit is below the bound is surely more than the cut below the row's largest.
  void set_bounds(const T (*most)[kLanes<T>]) {
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      const T largest = *std::max_element(most[r], most[r] + kLanes<T>);
      bounds_[r] =
          at_[r].kind == RowKind::kNothing ? std::numeric_limits<T>::infinity() : largest + skip_.cut - 2 * queries_.error[r];
    }
  }

  void take(const KeyRange& range, std::int64_t tile, const T* logits, std::vector<std::int32_t>& columns) const {
    std::int32_t kept[kTile];
    std::int32_t any = 0;
    for (std::int64_t v = 0; v < kTile; v += kLanes<T>) {
      std::int32_t keep[kLanes<T>] = {};
      for (std::int64_t r = 0; r < kStripRows; ++r) {
#pragma omp simd
        for (std::int64_t l = 0; l < kLanes<T>; ++l) keep[l] |= !(logits[r * kTile + v + l] < bounds_[r]);
      }
#pragma omp simd reduction(| : any)
      for (std::int64_t l = 0; l < kLanes<T>; ++l) {
        kept[v + l] = keep[l];
        any |= keep[l];
      }
    }
    if (!any) return;
    const std::int64_t begin = std::max(range.first, tile * kTile),
                       end = std::min(range.first + range.count, (tile + 1) * kTile);
    for (std::int64_t j = begin; j < end; ++j) {
      if (kept[j - tile * kTile]) columns.push_back(static_cast<std::int32_t>(range.column + j - range.first));
    }
  }

  void hide(Strip<T>& strip) const {
    for (std::size_t n = 0; n < strip.size(); ++n) {
      const std::int64_t key = block_.key_of(strip.columns[n]);
      for (std::int64_t r = 0; r < rows_; ++r) {
        if (at_[r].kind == RowKind::kNothing) continue;
        mask_keys({key, 1, 0}, plan_, attention_.geometry().mask(at_[r].sequence), at_[r].position,
                  &strip.weights[Strip<T>::place(n, r)]);
      }
    }
  }

  // Softmax of the strip's logits row by row, all rows of one or more keys in a register; then the list shrinks to the keys
  // that some row keeps.
  void weigh(Strip<T>& strip, double* log_sum_exp) {
    constexpr std::size_t kStep = kLanes<T>;
    std::vector<T>& x = strip.weights;
    x.resize((x.size() + kStep - 1) / kStep * kStep, kHidden<T>);
    T largest[kStep], sum[kStep] = {}, below[kThresholds][kStep] = {};
    std::fill_n(largest, kStep, kHidden<T>);
    for (std::size_t i = 0; i < x.size(); i += kStep) {
#pragma omp simd
      for (std::size_t l = 0; l < kStep; ++l) largest[l] = std::max(largest[l], x[i + l]);
    }
    for (std::size_t l = kStripRows; l < kStep; ++l) largest[l % kStripRows] = std::max(largest[l % kStripRows], largest[l]);
    for (std::size_t l = kStripRows; l < kStep; ++l) largest[l] = largest[l % kStripRows];
    for (std::size_t i = 0; i < x.size(); i += kStep) {
#pragma omp simd
      for (std::size_t l = 0; l < kStep; ++l) {
        const T difference = x[i + l] - largest[l];
        const T e = difference < skip_.cut ? T(0) : vexp(difference);
        x[i + l] = e;
        sum[l] += e;
        for (int k = 0; k < kThresholds; ++k) below[k][l] += e < skip_.tried[k] ? e : T(0);
      }
    }
    fold(sum);
    for (T(&part)[kStep] : below) fold(part);
    T factor[kStripRows], threshold[kStripRows];
    for (std::int64_t r = 0; r < kStripRows; ++r)
      finish_row(r, largest[r], sum[r], below, factor[r], threshold[r], log_sum_exp);
    shrink(strip, factor, threshold);
  }

  static void fold(T* lanes) {
    for (std::int64_t l = kStripRows; l < kLanes<T>; ++l) lanes[l % kStripRows] += lanes[l];
  }

  void finish_row(std::int64_t r, T largest, T sum, const T (*below)[kLanes<T>], T& factor, T& threshold,
                  double* log_sum_exp) const {
    factor = 0;
    threshold = std::numeric_limits<T>::infinity();
    double value = -std::numeric_limits<double>::infinity();
    if (at_[r].kind == RowKind::kTokens) {
      factor = weight_factor(largest, sum, attention_.log_sum(at_[r]));
      threshold = skip_.best([&](int k) { return below[k][r]; }) * factor;
      value = log_sum_of(largest, sum);
    }
    if (log_sum_exp && r < rows_) log_sum_exp[at_[r].sequence * attention_.geometry().queries() + at_[r].row] = value;
  }

  static void shrink(Strip<T>& strip, const T* factor, const T* threshold) {
    std::size_t kept = 0;
    for (std::size_t n = 0; n < strip.size(); ++n) {
      T weights[kStripRows];
      int keep = 0;
#pragma omp simd reduction(| : keep)
      for (std::int64_t r = 0; r < kStripRows; ++r) {
        weights[r] = strip.weights[Strip<T>::place(n, r)] * factor[r];
        keep |= !(weights[r] < threshold[r]);
      }
      if (!keep) continue;
      strip.columns[kept] = strip.columns[n];
      std::copy_n(weights, kStripRows, strip.weights.data() + Strip<T>::place(kept++, 0));
    }
    strip.columns.resize(kept);
    strip.weights.resize(kept * kStripRows);
  }

  const Attention& attention_;
  const AttentionPlan& plan_;
  const AttentionBlock& block_;
  const CoarseKeys<T>& keys_;
  SkipThresholds<T> skip_;
  std::int64_t first_ = 0, rows_ = 0;
  AttentionRow at_[kStripRows];
  std::int64_t low_ = 0, high_ = 0;  // positions of the rows that see something
  typename CoarseKeys<T>::Queries queries_;
  T bounds_[kStripRows];
};

}  // namespace gau::cpu
