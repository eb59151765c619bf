// SharedRows: this rank's part of a batch of sequences [B, L] whose rows a group of ranks share.
//
// Positions are dealt out in order and in whole blocks of attention, so that each rank makes blocks that one rank alone would
// make too, and results have the same bits whatever the number of ranks. In the last layer only some rows are wanted, and there
// the blocks of these are dealt out; their inputs move to whom they fall to. A rank to which nothing falls keeps a row that
// stands for none (position -1, output 0), since it takes part in all that ranks exchange.
#pragma once

#include <cstdint>

#include "autograd/shared_ops.h"
#include "framework/rank_group.h"
#include "layers/query_rows.h"

namespace gau {

class SharedRows {
 public:
  /// `step` is part of the messages' labels.
  SharedRows(const RankGroup& group, std::int64_t batch, std::int64_t length, std::int64_t step);

  std::int64_t length() const { return length_; }
  /// i32 [B · n]: b · L + i of this rank's rows, -1 for one that stands for none.
  const Tensor& flat() const { return flat_; }
  /// i32 [B, n]: their positions, -1 likewise.
  const Tensor& positions() const { return positions_; }
  /// This rank's elements [B, n] of i32 [B, L] (undefined stays so); 0 where a row stands for none.
  Tensor own(const Tensor& whole) const;
  ops::SharedSequence sequence(std::int64_t layer) const { return {group_, bounds_, step_, layer}; }

  /// All of this rank's rows.
  QueryRows all() const;
  /// This rank's share of the flat rows i32 [M] that are wanted of the batch; undefined: all().
  QueryRows wanted(const Tensor& flat) const;
  /// By row of the whole list, from this rank's by row of its share: values of f64 or i32 [M] on all ranks of the group. Rows
  /// of padding get 0.
  template <class T>
  Tensor by_row(const QueryRows& rows, const Tensor& values, std::int64_t count) const;

 private:
  /// The member that has position i.
  int owner_of(std::int64_t position) const;
  ops::RowMoves moves_to(const QueryRows& whole, const std::vector<int>& receiver) const;

  RankGroup group_;
  std::int64_t batch_, length_, step_;
  std::vector<std::int64_t> bounds_;
  Tensor flat_, positions_;
};

}  // namespace gau
