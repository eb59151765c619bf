// The kept keys of a whole block of attention, strip by strip, and the products over them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "framework/attention_counters.h"
#include "framework/cpu/attention_logits.h"
#include "framework/cpu/key_search.h"
#include "framework/cpu/sparse_rows.h"
#include "framework/parallel.h"

namespace gau::cpu {

/// A tensor [B, L, C] cut into slices of columns, each [B, L, kWidth] without gaps. Sums over few of its rows take one slice
/// after another: rows that one strip has read then wait in the cache for the next one, where rows of the tensor itself, a
/// multiple of a page's half apart, would drive each other out.
template <class T>
class ColumnSlices {
 public:
  static constexpr std::int64_t kWidth = 3 * kLanes<T>;

  explicit ColumnSlices(const Tensor& x) : length_(x.dim(1)), columns_(x.dim(2)), slices_(Tensor::empty(x.shape(), x.dtype())) {
    const std::int64_t rows = x.dim(0) * length_;
    const T* const from = x.data<T>();
    T* const to = slices_.data<T>();
    parallel_for(columns_, kWidth, [&](std::int64_t begin, std::int64_t end) {
      T* slice = to + begin * rows;
      for (std::int64_t r = 0; r < rows; ++r, slice += end - begin)
        std::copy_n(from + r * columns_ + begin, end - begin, slice);
    });
    rows_ = rows;
  }

  /// The rows of a sequence in the slice that begins at column `begin`, a multiple of kWidth.
  const T* slice(std::int64_t begin, std::int64_t sequence) const {
    const std::int64_t width = std::min(kWidth, columns_ - begin);
    return slices_.data<T>() + begin * rows_ + sequence * length_ * width;
  }

 private:
  std::int64_t length_, columns_, rows_ = 0;
  Tensor slices_;
};

template <class T>
class SparseBlock {
 public:
  /// Below this width lists cost more than they save.
  static constexpr std::int64_t kLeastWidth = 256;

  explicit SparseBlock(const AttentionBlock& block) : block_(block), across_((block.rows + kStripRows - 1) / kStripRows) {}

  /// Lists the kept keys of every strip, and their weights. False when some strip keeps more than half of the keys: dense
  /// products are then faster for the block. From a matrix of weights,
  bool list(T* weights, const Pieces<T>& pieces) {
    return list_strips([&](Strip<T>& strip, std::int64_t row, std::int64_t rows) {
      T* const from = weights + row * block_.width;
      if (!list_columns(from, rows, block_.width, block_.width, pieces.thresholds.data() + row,
                        pieces.active.data() + row * pieces.count, block_.width / 2, strip)) {
        return false;
      }
      pick_weights(from, rows, block_.width, strip);
      return true;
    });
  }
  /// and without one.
  bool search(const Attention& attention, const CoarseKeys<T>& keys, double* log_sum_exp) {
    return list_strips([&](Strip<T>& strip, std::int64_t row, std::int64_t rows) {
      return KeySearch<T>(attention, block_, keys).list(row, rows, strip, log_sum_exp);
    });
  }

  /// Of the strips' eight-row lists: how many keys are kept.
  std::int64_t kept() const {
    std::int64_t sum = 0;
    for (const Strip<T>& strip : strips_) sum += static_cast<std::int64_t>(strip.size());
    return sum;
  }

  std::int64_t strips() const { return block_.sequences * across_; }

  /// Rows of `out` [B, R, C] = numbers · x for the block's rows.
  void weighted_sums(std::vector<T> Strip<T>::*numbers, const ColumnSlices<T>& x, Tensor out) {
    T* const to = out.data<T>();
    const std::int64_t width = out.dim(2);
    parallel_for(width, ColumnSlices<T>::kWidth, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t s = 0; s < strips_.size(); ++s) {
        const auto [row, rows] = extent(static_cast<std::int64_t>(s));
        const T* const keys = x.slice(begin, block_.first_sequence + row / block_.rows);
        const auto row_of = [&, count = end - begin](std::int64_t column) {
          return keys + block_.key_of(column) * count - begin;
        };
        weighted_sum(strips_[s], (strips_[s].*numbers).data(), row_of, begin, end, rows, to + place(out, row), width);
      }
    });
  }

  /// The slopes become in · v: in [B, R, E], v [B, L, E].
  void products(const Tensor& in, const Tensor& v) {
    const std::int64_t width = v.dim(2);
    for_strips([&](Strip<T>& strip, std::int64_t row, std::int64_t rows) {
      dots(strip.columns, rows_of_keys(v.data<T>(), v, row), width, rows, in.data<T>() + place(in, row), width, strip.slopes);
    });
  }

  /// x += numbersᵀ · in. Threads share the columns of x out, so each of its elements is summed in the order of the strips.
  void spread_to(std::vector<T> Strip<T>::*numbers, const Tensor& in, Tensor x) {
    constexpr std::int64_t kSlice = 96;
    T* const to = x.data<T>();
    const std::int64_t width = x.dim(2);
    parallel_for(width, kSlice, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t s = 0; s < strips_.size(); ++s) {
        const auto [row, rows] = extent(static_cast<std::int64_t>(s));
        spread(strips_[s], (strips_[s].*numbers).data(), rows_of_keys(to, x, row), begin, end, rows,
               in.data<T>() + place(in, row), width);
      }
    });
  }

  /// f(strip, first row in the block's matrix, rows), in parallel.
  template <class F>
  void for_strips(F&& f) {
    parallel_for(static_cast<std::int64_t>(strips_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) {
        const auto [row, rows] = extent(s);
        f(strips_[static_cast<std::size_t>(s)], row, rows);
      }
    });
  }

 private:
  template <class F>
  bool list_strips(F&& list_strip) {
    strips_.resize(static_cast<std::size_t>(strips()));
    std::atomic<bool> sparse{true};
    for_strips([&](Strip<T>& strip, std::int64_t row, std::int64_t rows) {
      if (sparse.load(std::memory_order_relaxed) && !list_strip(strip, row, rows)) {
        sparse.store(false, std::memory_order_relaxed);
      }
    });
    return sparse;
  }

  struct Extent {
    std::int64_t row, rows;
  };
  Extent extent(std::int64_t strip) const {
    const std::int64_t first = strip % across_ * kStripRows;
    return {strip / across_ * block_.rows + first, std::min(kStripRows, block_.rows - first)};
  }

  /// Where row `row` of the block begins in a tensor [B, R, C].
  std::int64_t place(const Tensor& x, std::int64_t row) const {
    return ((block_.first_sequence + row / block_.rows) * x.dim(1) + block_.first_row + row % block_.rows) * x.dim(2);
  }

  /// Column of the block -> the key's row in a tensor [B, L, C] of the sequence that `row` belongs to.
  template <class P>
  auto rows_of_keys(P* data, const Tensor& x, std::int64_t row) const {
    P* const sequence = data + (block_.first_sequence + row / block_.rows) * x.dim(1) * x.dim(2);
    const std::int64_t columns = x.dim(2);
    return [=, this](std::int64_t column) { return sequence + block_.key_of(column) * columns; };
  }

  const AttentionBlock& block_;
  std::int64_t across_;  ///< strips of one sequence
  std::vector<Strip<T>> strips_;
};

}  // namespace gau::cpu
