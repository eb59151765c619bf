// Operations on sequences whose rows lie with several ranks. All members of a group record them in the same order, and so meet
// again in the same order in backward.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops.h"
#include "framework/backend.h"
#include "framework/rank_group.h"

namespace gau::ops {

/// Whose rows are whose, and what messages about them are called.
struct SharedSequence {
  RankGroup group;
  std::vector<std::int64_t> bounds;  ///< member p has positions [bounds[p], bounds[p + 1]) of each sequence
  std::int64_t step = -1;            ///< of the messages' labels
  std::int64_t layer = -1;

  MessageLabel forward_label() const { return {MessageKind::kKeys, step, layer}; }
  MessageLabel backward_label() const { return {MessageKind::kKeyGradients, step, layer}; }
};

/// Which query rows of each sequence the members ask for: member p for the rows [bounds[p], bounds[p + 1]) of all.
struct SharedQueries {
  std::vector<std::int64_t> bounds;
  Tensor positions;  ///< i32 [B, bounds.back()]: of the members' rows, -1: none; undefined: row r is at r
};

/// Rows on their way from the members that have them to those that want them; each goes to one member at most.
struct RowMoves {
  std::vector<std::int64_t> sent;      ///< by member: how many rows it gets from here
  std::vector<std::int64_t> received;  ///< by member: how many it gives
  Tensor leaving;                      ///< i32: this member's rows in the order sent, by member; {-1} when there are none
  Tensor arriving;                     ///< i32 [M]: which of the received rows each row of the result is, -1: a row of zeros
};

/// `in` with the keys and values of whole sequences [B, L, C] in the place of this member's own [B, n, C].
AttentionInputs gathered(const AttentionInputs& in, const SharedSequence& shared);

/// attention() of this member's query rows over the keys and values of all members: q [B, R, D], k [B, n, D], v [B, n, E] of
/// its own rows; key_mask [B, L] and rows [B, R] tell of whole sequences. How the keys come here is the group's choice.
///
/// Gathered: the bits are those of the same blocks of rows on one rank. Keys and values of whole sequences exist only while
/// this runs: backward gathers them again.
/// In a ring: see autograd/ring_attention.h.
Variable shared_attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec,
                          const SharedSequence& shared, const SharedQueries& queries);

/// Rows [M, C] that this member wants, of x [·, C] of all members.
Variable move_rows(const Variable& x, const RowMoves& moves, const SharedSequence& shared);

/// `sum` [1] of this member with the value `total` that all members agree on: gradients pass as they are.
Variable shared_sum(const Variable& sum, double total);

}  // namespace gau::ops
