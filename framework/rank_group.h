// RankGroup: neighbouring ranks that share the rows of each sequence, and the ways in which rows move among them.
//
// Member p of the group has the rows [bounds[p], bounds[p + 1]) of every sequence of a batch. Nothing is computed here but the
// sums of scatter_sum, which run in the order of members: where a row lies never changes its bits.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/communicator.h"
#include "framework/tensor.h"

namespace gau {

struct RankGroup {
  Communicator* ranks = nullptr;  ///< null: the group is this process alone
  int first = 0;                  ///< its members are the ranks first, …, first + count - 1
  int count = 1;

  bool shared() const { return count > 1; }
  /// This rank's place in the group.
  int index() const { return shared() ? ranks->rank() - first : 0; }

  /// The group of this rank when every `count` neighbours make one. `count` divides the number of ranks.
  static RankGroup of(Communicator& ranks, int count);

  /// `mine` [B, n, C] holds this member's rows, maybe followed by others; `all` [B, L, C] gets those of all members.
  void gather(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& mine, Tensor all) const;
  /// The way back of gather(): `mine` gets the sums of what all members' `all` have at its rows, 0 in its other rows.
  void scatter_sum(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& all, Tensor mine) const;
  /// Member p gets the next sent[p] rows of `from` [·, C]; `to` gets the received[p] rows of each member p, one after another.
  void exchange(const MessageLabel& label, const std::vector<std::int64_t>& sent, const Tensor& from,
                const std::vector<std::int64_t>& received, Tensor to) const;
};

}  // namespace gau
