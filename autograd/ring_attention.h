// Attention of a sequence that ranks share, by keys and values that come by one after another.
//
// A rank keeps its own rows of keys and values, and has besides them at most two other members' parts at a time: the one that
// its queries look at, and the next one on its way. In step s member m looks at the part of member m - s, the members in a
// ring, and merges the result into what it has (Backend::merge_attention). A part comes from its owner, not from the neighbour
// that has just used it: so it goes to those members alone some of whose rows see some of its keys, which every member works
// out for all. With a window these are few.
//
// Backward does the same round. The weights of a part follow from log_sum_exp over all keys, so a part's gradients are complete
// when its step is; they go back to the owner, which adds them in the order of steps: its own, then those of member m + 1, …
//
// The result is softmax over all keys, as exact as the parts' sums; each order is fixed, so for a given number of members the
// bits are the same in every run. What AttentionPlan::skip lets out of a row is at most so much of the row's largest weight:
// each of k parts leaves out at most skip / k of its own largest, which is no larger.
#pragma once

#include "autograd/shared_ops.h"

namespace gau::ops {

/// shared_attention() of groups that exchange in a ring.
Variable ring_attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec,
                        const SharedSequence& shared, const SharedQueries& queries);

}  // namespace gau::ops
