// QueryRows: which rows of a layer's output are wanted, and where they come from.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/shared_ops.h"
#include "framework/tensor.h"

namespace gau {

class SharedRows;

/// Rows are numbered over whole sequences: b · L + i. The rows that are wanted, and the same grouped by sequence and padded to
/// one width, as attention takes them.
struct QueryRows {
  Tensor flat;       ///< i32 [M]: ascending, -1 padding; undefined: all rows
  Tensor grouped;    ///< i32 [B · R]: the row b · L + i shown at (b, r), -1 none
  Tensor positions;  ///< i32 [B, R]: position i of that row in its sequence, -1 none
  Tensor ungroup;    ///< i32 [M]: where row m of `flat` lies in [B · R], -1 for padding; undefined: all rows of the input
  bool all() const { return !ungroup.defined(); }

  // Where ranks share sequences (layers/shared_rows.h); all above is then of this rank's rows.
  const SharedRows* shared = nullptr;
  ops::SharedQueries queries;      ///< of all ranks together
  ops::RowMoves moves;             ///< rows of the input -> rows of `flat`
  Tensor group;                    ///< i32 [B · R]: which row of `flat` is shown at (b, r), -1 none
  std::vector<std::int64_t> mine;  ///< which rows of the whole list those of `flat` are; fewer than M where these are padding
};

/// Groups flat rows of a batch [B, L]; R is the largest count of a sequence, rounded up to a multiple of 8.
QueryRows group_rows(const Tensor& flat, std::int64_t batch, std::int64_t length);

}  // namespace gau
