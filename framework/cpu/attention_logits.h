// The logits and weights of one attention call, block by block, and what both of its passes share.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "framework/cpu/attention_rows.h"
#include "framework/cpu/dropout_row.h"
#include "framework/parallel.h"

namespace gau::cpu {

constexpr std::int64_t kRowGrain = 4;  // rows of logits that one thread takes at a time

// The block's part of a tensor [B, N, C] (rows `first` to `first + count` of each of its sequences) as a batch of matrices.
inline MatrixView rows_of(const Tensor& x, const AttentionBlock& block, std::int64_t first, std::int64_t count,
                          bool transposed) {
  const std::int64_t columns = x.dim(2), stride = x.dim(1) * columns;
  return {x,
          transposed ? columns : count,
          transposed ? count : columns,
          columns,
          transposed,
          block.first_sequence * stride + first * columns,
          block.sequences,
          stride};
}

// `count` columns of the block's matrix of logits.
inline MatrixView columns_of(const Tensor& s, const AttentionBlock& block, std::int64_t column, std::int64_t count,
                             bool transposed) {
  return {s,
          transposed ? count : block.rows,
          transposed ? block.rows : count,
          block.width,
          transposed,
          column,
          block.sequences,
          block.rows * block.width};
}

/// What a block's rows leave out: a piece of kPiece columns that is not active has only weights below its row's threshold, and
/// its place in the matrix holds no weights but leftovers, to be read as zeros.
template <class T>
struct Pieces {
  std::int64_t count = 0;     ///< pieces a row
  std::vector<T> thresholds;  ///< a row
  std::vector<T> maxima;      ///< a row and piece: room for softmax_pieces
  std::vector<std::uint8_t> active;

  void resize(const AttentionBlock& block) {
    const auto rows = static_cast<std::size_t>(block.sequences * block.rows);
    count = pieces_of(block.width);
    thresholds.resize(rows);
    maxima.resize(rows * static_cast<std::size_t>(count));
    active.resize(maxima.size());
  }
  T* maxima_of(std::int64_t row) { return maxima.data() + row * count; }
  std::uint8_t* active_of(std::int64_t row) { return active.data() + row * count; }
};

/// One query row of a block.
struct AttentionRow {
  std::int64_t sequence, row;  ///< in the call's tensors
  RowKind kind;
  std::int64_t position;
};

struct RegionInput {
  Region region;
  const Tensor& q;
  const Tensor& k;
};

/// The gradients of a region's q and k.
inline std::pair<Tensor, Tensor> gradients_of(const AttentionGradients& g, Region region) {
  switch (region) {
    case Region::kNear:
      return {g.q_near, g.k_near};
    case Region::kLeft:
      return {g.q_left, g.k_left};
    case Region::kRight:
      break;
  }
  return {g.q_right, g.k_right};
}

class Attention {
 public:
  Attention(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan)
      : backend_(backend), in_(in), geometry_(in, plan), plan_(geometry_.plan()) {
    regions_.push_back({Region::kNear, in.q_near, in.k_near});
    if (plan.has_far()) {
      regions_.push_back({Region::kLeft, in.q_left, in.k_left});
      regions_.push_back({Region::kRight, in.q_right, in.k_right});
      far_ = buffer();
    }
    weights_ = buffer();
  }

  const AttentionGeometry& geometry() const { return geometry_; }
  const AttentionPlan& plan() const { return plan_; }
  const std::vector<RegionInput>& regions() const { return regions_; }
  Tensor buffer() const { return Tensor::empty({geometry_.largest()}, in_.q_near.dtype()); }
  Tensor weights() const { return weights_; }
  /// Weights are from now on exp(logit - log_sum_exp) for these sums [B, R].
  void use_log_sums(const double* log_sum_exp) { log_sums_ = log_sum_exp; }
  /// The row's, or null.
  const double* log_sum(const AttentionRow& at) const {
    return log_sums_ ? log_sums_ + at.sequence * geometry_.queries() + at.row : nullptr;
  }

  /// Row `n` of the block's matrix.
  AttentionRow row(const AttentionBlock& block, std::int64_t n) const {
    const std::int64_t b = block.first_sequence + n / block.rows, r = block.first_row + n % block.rows;
    return {b, r, geometry_.kind(b, r), geometry_.position(b, r)};
  }

  /// Calls f(row, its index in the block's matrix) for the block's rows, in parallel.
  template <class F>
  void for_rows(const AttentionBlock& block, F&& f) const {
    parallel_for(block.sequences * block.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) f(row(block, n), n);
    });
  }

  /// Fills weights() with the block's attention weights; ln Σ exp goes to log_sum_exp when it is given. With `pieces`, weights
  /// below their row's threshold may be missing, as Pieces says.
  template <class T>
  void weigh(const AttentionBlock& block, Pieces<T>* pieces, double* log_sum_exp) {
    if (pieces) pieces->resize(block);
    // Logits decide by differences; at s = 128 a bf16 product is off by 1e-2. They cost a twelfth of the value products.
    const ProductTypeScope exact(backend_, DType::kF32);
    for (const RegionInput& region : regions_) logits_of<T>(block, region);
    for_rows(block, [&](const AttentionRow& at, std::int64_t n) { weigh_row(block, at, n, pieces, log_sum_exp); });
  }

  /// Whether a logit is q · k, or hidden, and nothing else.
  bool logits_are_products() const { return !plan_.has_far() && !plan_.has_bias() && !plan_.has_distance_law(); }

  /// Whether one row, against every eighth key, keeps more than a quarter of them: then lists would not pay, and are not tried.
  template <class T>
  bool looks_dense(const AttentionBlock& block) const {
    if (!logits_are_products()) return false;
    const AttentionRow at = row(block, block.rows / 2);
    if (at.kind != RowKind::kTokens) return false;
    const std::int64_t d = in_.q_near.dim(2);
    const T* const q = in_.q_near.data<T>() + (at.sequence * geometry_.queries() + at.row) * d;
    const T* const k = in_.k_near.data<T>() + at.sequence * geometry_.keys() * d;
    std::vector<T> logits;
    for (const KeyRange& range : block.keys) {
      for (std::int64_t j = 0; j < range.count; j += 8) logits.push_back(dot_row(q, k + (range.first + j) * d, d));
    }
    const T least = *std::max_element(logits.begin(), logits.end()) + static_cast<T>(std::log(plan_.skip / 32));
    return 4 * std::count_if(logits.begin(), logits.end(), [=](T x) { return x >= least; }) >
           static_cast<std::int64_t>(logits.size());
  }

  /// Writes the zeros that Pieces leaves to be read.
  template <class T>
  void fill_zeros(const AttentionBlock& block, const Pieces<T>& pieces) {
    T* const all = weights_.template data<T>();
    for_rows(block, [&](const AttentionRow&, std::int64_t n) {
      for (std::int64_t p = 0; p < pieces.count; ++p) {
        if (pieces.active[static_cast<std::size_t>(n * pieces.count + p)]) continue;
        T* const piece = all + n * block.width + p * kPiece;
        std::fill(piece, piece + std::min(kPiece, block.width - p * kPiece), T(0));
      }
    });
  }

  /// Multiplies one row of the block by its dropout factors.
  template <class T>
  void drop(const AttentionBlock& block, const DropoutSpec& spec, const AttentionRow& at, T* row) const {
    for (const KeyRange& range : block.keys) {
      dropout_row(spec, spec.first_sample + static_cast<std::uint64_t>(at.sequence), at.position + geometry_.first_key(),
                  range.first + geometry_.first_key(), range.count, row + range.column);
    }
  }

  /// dQ += dS K and dK += dSᵀ Q of every region, from the block's dS; `scratch` is of the size of a buffer.
  template <class T>
  void spread(const AttentionBlock& block, const Tensor& ds, const AttentionGradients& gradients, Tensor scratch) {
    for (const RegionInput& region : regions_) {
      const auto [dq, dk] = gradients_of(gradients, region.region);
      const Tensor& part = plan_.has_far() ? scratch : ds;
      for (const KeyRange& range : block.keys) {
        const ColumnSpan span = region_span(block, range, region.region, plan_);
        if (span.count == 0) continue;
        if (plan_.has_far()) restrict_to<T>(block, span, region.region, ds, scratch);
        backend_.gemm(columns_of(part, block, span.column, span.count, false),
                      rows_of(region.k, block, span.first_key, span.count, false),
                      rows_of(dq, block, block.first_row, block.rows, false), 1.0, true);
        backend_.gemm(columns_of(part, block, span.column, span.count, true),
                      rows_of(region.q, block, block.first_row, block.rows, false),
                      rows_of(dk, block, span.first_key, span.count, false), 1.0, true);
      }
    }
  }

 private:
  // Weights of one row from its logits.
  template <class T>
  void weigh_row(const AttentionBlock& block, const AttentionRow& at, std::int64_t n, Pieces<T>* pieces, double* log_sum_exp) {
    T* const row = weights_.data<T>() + n * block.width;
    const std::int64_t place = at.sequence * geometry_.queries() + at.row;
    const double* const log_sum = this->log_sum(at);
    double value = -std::numeric_limits<double>::infinity();
    T threshold = 0;
    if (at.kind == RowKind::kTokens) {
      if (plan_.has_distance_law()) scale_by_distance(block, plan_, at.position, true, row);
      mask_row(block, plan_, geometry_.mask(at.sequence), at.position, row);
      value = pieces
                  ? softmax_pieces(row, block.width, plan_.skip, log_sum, pieces->maxima_of(n), pieces->active_of(n), threshold)
                  : softmax_row(row, block.width, log_sum);
    } else {
      const bool uniform = at.kind == RowKind::kUniform;
      if (uniform) {
        value = std::log(static_cast<double>(block.width));
        threshold = weight_factor(T(0), static_cast<T>(block.width), log_sum);
      }
      std::fill(row, row + block.width, threshold);
      if (pieces) std::fill_n(pieces->active_of(n), pieces->count, uniform);
    }
    if (pieces) pieces->thresholds[static_cast<std::size_t>(n)] = threshold;
    if (log_sum_exp) log_sum_exp[place] = value;
  }

  // Logits of one region into weights_; far ones through a second buffer, of which only the region's pairs are taken.
  template <class T>
  void logits_of(const AttentionBlock& block, const RegionInput& region) {
    const bool near = region.region == Region::kNear;
    for (const KeyRange& range : block.keys) {
      const ColumnSpan span = region_span(block, range, region.region, plan_);
      if (span.count == 0) continue;
      backend_.gemm(rows_of(region.q, block, block.first_row, block.rows, false),
                    rows_of(region.k, block, span.first_key, span.count, true),
                    columns_of(near ? weights_ : far_, block, span.column, span.count, false), 1.0, false);
      if (near) continue;
      const T* from = far_.data<T>();
      T* to = weights_.data<T>();
      for_rows(block, [&](const AttentionRow& at, std::int64_t n) {
        const auto [begin, end] = row_columns(span, region.region, at.position);
        std::copy(from + n * block.width + begin, from + n * block.width + end, to + n * block.width + begin);
      });
    }
  }

  // Columns of the span that lie in the region for the query at position i.
  std::pair<std::int64_t, std::int64_t> row_columns(const ColumnSpan& span, Region region, std::int64_t i) const {
    std::int64_t begin = span.first_key, end = span.first_key + span.count;
    switch (region) {
      case Region::kNear:
        begin = std::max(begin, i - plan_.near_limit + 1);
        end = std::min(end, i + plan_.near_limit);
        break;
      case Region::kLeft:
        end = std::min(end, i - plan_.near_limit + 1);
        break;
      case Region::kRight:
        begin = std::max(begin, i + plan_.near_limit);
        break;
    }
    begin = std::min(begin, span.first_key + span.count);
    end = std::max(end, begin);
    return {span.column + begin - span.first_key, span.column + end - span.first_key};
  }

  // scratch = ds on the region's pairs of the span, 0 on the span's others.
  template <class T>
  void restrict_to(const AttentionBlock& block, const ColumnSpan& span, Region region, const Tensor& ds, Tensor scratch) const {
    const T* from = ds.data<T>();
    T* to = scratch.data<T>();
    for_rows(block, [&](const AttentionRow& at, std::int64_t n) {
      const auto [begin, end] = row_columns(span, region, at.position);
      const T* in = from + n * block.width;
      T* out = to + n * block.width;
      std::fill(out + span.column, out + begin, T(0));
      std::copy(in + begin, in + end, out + begin);
      std::fill(out + end, out + span.column + span.count, T(0));
    });
  }

  Backend& backend_;
  const AttentionInputs& in_;
  AttentionGeometry geometry_;
  const AttentionPlan& plan_;  // positions count from the first key
  const double* log_sums_ = nullptr;
  std::vector<RegionInput> regions_;
  Tensor weights_;
  Tensor far_;
};

}  // namespace gau::cpu
