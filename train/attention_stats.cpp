#include "train/attention_stats.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>

#include "framework/kernels.h"
#include "framework/parallel.h"
#include "layers/planner.h"

namespace gau {
namespace {

constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kRowGrain = 4;

/// Sequence b of a tensor [B, N, C], in double; undefined stays so.
Tensor sequence_of(const Tensor& x, std::int64_t b) {
  if (!x.defined()) return {};
  const std::int64_t size = x.dim(1) * x.dim(2);
  return x.segment(b * size, {1, x.dim(1), x.dim(2)}).to(DType::kF64);
}

/// Rows [first, first + count) of a tensor [1, N, C].
Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  return x.defined() ? x.segment(first * x.dim(2), {1, count, x.dim(2)}) : Tensor();
}

std::int32_t position_of(const AttentionInputs& in, std::int64_t index) {
  const std::int64_t queries = in.q_near.dim(1);
  return in.rows.defined() ? in.rows.data<std::int32_t>()[index] : static_cast<std::int32_t>(index % queries);
}

bool is_token(const AttentionInputs& in, std::int64_t b, std::int64_t position) {
  if (position < 0) return false;
  return !in.key_mask.defined() || in.key_mask.data<std::int32_t>()[b * in.k_near.dim(1) + position] != 0;
}

}  // namespace

void for_attention_rows(const AttentionInputs& in, const AttentionPlan& plan,
                        const std::function<void(const AttentionRow&)>& visit) {
  const std::int64_t batch = in.q_near.dim(0), queries = in.q_near.dim(1), length = in.k_near.dim(1);
  AttentionPlan exact = plan;
  exact.skip = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    AttentionInputs all{sequence_of(in.q_near, b),
                        sequence_of(in.k_near, b),
                        sequence_of(in.q_left, b),
                        sequence_of(in.k_left, b),
                        sequence_of(in.q_right, b),
                        sequence_of(in.k_right, b),
                        {},
                        {},
                        {}};
    if (in.key_mask.defined()) all.key_mask = in.key_mask.segment(b * length, {1, length});
    for (std::int64_t first = 0; first < queries; first += kBlockRows) {
      const std::int64_t count = std::min(kBlockRows, queries - first);
      AttentionInputs block = all;
      block.q_near = rows_of(all.q_near, first, count);
      block.q_left = rows_of(all.q_left, first, count);
      block.q_right = rows_of(all.q_right, first, count);
      block.rows = Tensor::empty({1, count}, DType::kI32);
      for (std::int64_t r = 0; r < count; ++r) {
        block.rows.data<std::int32_t>()[r] = position_of(in, b * queries + first + r);
      }
      Tensor weights = Tensor::empty({1, count, length}, DType::kF64);
      kernels::attention_weights(block, exact, weights);
      const std::span<const double> values = std::as_const(weights).span<double>();
      parallel_for(count, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const std::int64_t index = b * queries + first + r, position = position_of(in, index);
          if (!is_token(in, b, position)) continue;
          visit({index, b, position, values.subspan(static_cast<std::size_t>(r * length), static_cast<std::size_t>(length))});
        }
      });
    }
  }
}

double row_entropy(std::span<const double> weights) {
  double sum = 0;
  for (const double p : weights) {
    if (p > 0) sum -= p * std::log(p);
  }
  return sum;
}

double row_lambda(std::span<const double> weights) {
  std::vector<double> sorted;
  std::copy_if(weights.begin(), weights.end(), std::back_inserter(sorted), [](double p) { return p > 0; });
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double largest = 0;
  for (std::size_t n = 1; n < sorted.size(); ++n) {
    const double gap = std::log(sorted[0] / sorted[n]);
    largest = std::max(largest, gap > 0 ? std::log(static_cast<double>(n + 1)) / gap : std::numeric_limits<double>::infinity());
  }
  return largest;
}

std::vector<RowFigures> row_figures(const AttentionInputs& in, const AttentionPlan& plan) {
  const std::int64_t batch = in.q_near.dim(0), queries = in.q_near.dim(1), length = in.k_near.dim(1);
  const Tensor seen = Planner::visible_keys(plan, {batch, length, in.key_mask, {}, 0});
  std::vector<RowFigures> figures(static_cast<std::size_t>(batch * queries));
  std::vector<char> present(figures.size(), 0);
  for_attention_rows(in, plan, [&](const AttentionRow& row) {
    RowFigures& out = figures[static_cast<std::size_t>(row.index)];
    out.entropy = row_entropy(row.weights);
    // A row that sees no key attends to all alike.
    const double keys = seen.at(row.sequence * length + row.position);
    out.uniform = std::log(keys > 0 ? keys : static_cast<double>(length));
    for (std::int64_t j = 0; j < length; ++j) {
      out.distance += row.weights[static_cast<std::size_t>(j)] * static_cast<double>(std::abs(row.position - j));
    }
    out.diagonal = row.weights[static_cast<std::size_t>(row.position)];
    present[static_cast<std::size_t>(row.index)] = 1;
  });
  std::vector<RowFigures> kept;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (present[i]) kept.push_back(figures[i]);
  }
  return kept;
}

RowFigures mean_of(std::span<const RowFigures> rows) {
  RowFigures mean;
  for (const RowFigures& row : rows) {
    mean.entropy += row.entropy;
    mean.uniform += row.uniform;
    mean.distance += row.distance;
    mean.diagonal += row.diagonal;
  }
  const double count = static_cast<double>(rows.size());
  return {mean.entropy / count, mean.uniform / count, mean.distance / count, mean.diagonal / count};
}

std::vector<std::int32_t> spaced_rows(std::int64_t length, std::int64_t count) {
  count = std::min(count, length);
  std::vector<std::int32_t> rows;
  for (std::int64_t n = 0; n < count; ++n) rows.push_back(static_cast<std::int32_t>((2 * n + 1) * length / (2 * count)));
  return rows;
}

Tensor spaced_rows(std::int64_t batch, std::int64_t length, std::int64_t count) {
  const std::vector<std::int32_t> one = spaced_rows(length, count);
  std::vector<std::int32_t> flat;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (const std::int32_t position : one) flat.push_back(static_cast<std::int32_t>(b * length) + position);
  }
  return Tensor::from(flat, {static_cast<std::int64_t>(flat.size())});
}

}  // namespace gau
