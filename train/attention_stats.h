// Figures of attention, row by row: how spread it is, how far it reaches, how sharply it tells its keys apart.
//
// They are taken from the weights that the kernels give for the model's own q and k, in double, whatever the model's type: no
// weight that matters for Λ then underflows. A block of rows at a time: memory is O(length).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "framework/attention_plan.h"
#include "framework/backend.h"

namespace gau {

/// One row of attention weights, of a token.
struct AttentionRow {
  std::int64_t index = 0;     ///< b · R + r, its place among the rows of the inputs
  std::int64_t sequence = 0;  ///< b
  std::int64_t position = 0;  ///< i
  std::span<const double> weights;
};

/// Calls visit for every row of the inputs that belongs to a token; rows of padding and unused ones are left out. Rows are
/// shared by threads, so visit writes only to what its row owns.
void for_attention_rows(const AttentionInputs& in, const AttentionPlan& plan,
                        const std::function<void(const AttentionRow&)>& visit);

/// −Σ p ln p in nats.
double row_entropy(std::span<const double> weights);

/// Λ of a row: max over j of ln(rank_j) / gap_j, logits sorted downwards, rank_j = 2, 3, …, gap_j = largest logit − logit j
/// (arXiv 2605.12697). Gaps are those of ln p, which differs from the logits by a constant; keys of weight 0 (hidden, or more
/// than 700 nats below) are left out. Infinite when the largest logit is shared, 0 when only one key has weight.
double row_lambda(std::span<const double> weights);

struct RowFigures {
  double entropy = 0;   ///< nats
  double uniform = 0;   ///< ln of the number of keys seen: the largest entropy that the row can have
  double distance = 0;  ///< Σ p |Δ|, tokens
  double diagonal = 0;  ///< weight on itself
};

/// Figures of all token rows, in the order of the inputs.
std::vector<RowFigures> row_figures(const AttentionInputs& in, const AttentionPlan& plan);
/// Their means; NaN without any row.
RowFigures mean_of(std::span<const RowFigures> rows);

/// Positions of `count` rows of a sequence of `length`, evenly spaced, ascending; all of them when `count` is not smaller.
std::vector<std::int32_t> spaced_rows(std::int64_t length, std::int64_t count);
/// The same in each of `batch` sequences, as flat rows: ModelInputs::rows.
Tensor spaced_rows(std::int64_t batch, std::int64_t length, std::int64_t count);

}  // namespace gau
