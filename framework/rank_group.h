// RankGroup: neighbouring ranks that share the rows of each sequence, and the ways in which rows move among them.
//
// Member p of the group has the rows [bounds[p], bounds[p + 1]) of every sequence of a batch. Nothing is computed here but the
// sums of scatter_sum, which run in the order of members: where a row lies never changes its bits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/communicator.h"
#include "framework/tensor.h"

namespace gau {

/// How the members of a group come by each other's keys and values.
enum class SequenceExchange {
  kGather,  ///< all members' at once: the bits of one rank
  kRing,    ///< one member's after another's: less memory, equal up to rounding
};
/// Their names, in order.
inline constexpr std::array kSequenceExchangeNames{"gather", "ring"};

struct RankGroup {
  Communicator* ranks = nullptr;  ///< null: the group is this process alone
  int first = 0;                  ///< its members are the ranks first, …, first + count - 1
  int count = 1;
  SequenceExchange sequence_exchange = SequenceExchange::kGather;

  bool shared() const { return count > 1; }
  /// This rank's place in the group.
  int index() const { return shared() ? ranks->rank() - first : 0; }

  /// The group of this rank when every `count` neighbours make one. `count` divides the number of ranks.
  static RankGroup of(Communicator& ranks, int count, SequenceExchange sequence_exchange = SequenceExchange::kGather);

  /// `mine` [B, n, C] holds this member's rows, maybe followed by others; `all` [B, L, C] gets those of all members.
  void gather(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& mine, Tensor all) const;
  /// The way back of gather(): `mine` gets the sums of what all members' `all` have at its rows, 0 in its other rows.
  void scatter_sum(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& all, Tensor mine) const;
  /// Member p gets the next sent[p] rows of `from` [·, C]; `to` gets the received[p] rows of each member p, one after another.
  void exchange(const MessageLabel& label, const std::vector<std::int64_t>& sent, const Tensor& from,
                const std::vector<std::int64_t>& received, Tensor to) const;
};

/// Tensors on their way between members, kept until they have arrived. Undefined ones and those without elements are not sent.
class RowTransfers {
 public:
  RowTransfers(const RankGroup& group, const MessageLabel& label) : group_(group), label_(label) {}

  void send(int member, const Tensor& data);
  void receive(int member, const Tensor& data);
  /// Lets them advance.
  void progress();
  /// Ends what has been started. Receives first: what a member sends leaves only as it arrives, which its receiver sees to.
  void wait();

 private:
  struct Started {
    Tensor data;
    std::unique_ptr<Transfer> transfer;
  };
  void wait_for(std::vector<Started>& list);

  RankGroup group_;
  MessageLabel label_;
  std::vector<Started> receives_, sends_;
};

}  // namespace gau
