#include "framework/cpu/attention_blocks.h"

#include "framework/attention_block_rows.h"
#include "framework/visible_keys.h"

namespace gau::cpu {

namespace {
// Elements of a block: its logits stay in the second-level cache times a few, and many short sequences share one batched
// product.
constexpr std::int64_t kBlockElements = 1 << 20;
}  // namespace

AttentionGeometry::AttentionGeometry(const AttentionInputs& in, const AttentionPlan& plan)
    : batch_(in.q_near.dim(0)),
      queries_(in.q_near.dim(1)),
      keys_(in.k_near.dim(1)),
      first_key_(in.first_key),
      length_(in.length > 0 ? in.length : keys_),
      plan_(plan),
      positions_(in.rows.defined() ? in.rows.data<std::int32_t>() : nullptr),
      mask_(in.key_mask.defined() ? in.key_mask.data<std::int32_t>() : nullptr) {
  classify_rows(plan);
  plan_.sinks = std::clamp<std::int64_t>(plan.sinks - first_key_, 0, keys_);
  plan_.rows -= first_key_;
  const std::int64_t rows = std::min(queries_, kAttentionBlockRows);
  const std::int64_t together =
      queries_ > rows ? 1 : std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, rows * keys_));
  for (std::int64_t b = 0; b < batch_; b += together) {
    for (std::int64_t r = 0; r < queries_; r += rows) {
      make_block(b, std::min(together, batch_ - b), r, std::min(rows, queries_ - r));
    }
  }
}

void AttentionGeometry::classify_rows(const AttentionPlan& plan) {
  const bool part = keys_ < length_;
  if (!mask_ && !positions_ && !plan.mask_diagonal && !part) return;
  kinds_.assign(static_cast<std::size_t>(batch_ * queries_), RowKind::kTokens);
  for (std::int64_t b = 0; b < batch_; ++b) {
    const VisibleKeys keys(plan, mask_ ? mask_ + b * length_ : nullptr, length_);
    for (std::int64_t r = 0; r < queries_; ++r) {
      RowKind& kind = kinds_[static_cast<std::size_t>(b * queries_ + r)];
      const std::int64_t i = positions_ ? positions_[b * queries_ + r] : r;
      if (i < 0 || keys.empty()) {
        kind = RowKind::kNothing;
      } else if (keys.sees_nothing(i)) {
        kind = RowKind::kUniform;
      } else if (part && keys.seen(i, first_key_, first_key_ + keys_) == 0) {
        kind = RowKind::kNothing;
      }
    }
  }
}

void AttentionGeometry::make_block(std::int64_t sequence, std::int64_t sequences, std::int64_t row, std::int64_t rows) {
  AttentionBlock block;
  block.first_sequence = sequence;
  block.sequences = sequences;
  block.first_row = row;
  block.rows = rows;
  bool any = false, all = false;
  for (std::int64_t b = sequence; b < sequence + sequences; ++b) {
    for (std::int64_t r = row; r < row + rows; ++r) {
      if (kind(b, r) == RowKind::kNothing) continue;
      const std::int64_t i = position(b, r);
      block.low = any ? std::min(block.low, i) : i;
      block.high = any ? std::max(block.high, i) : i;
      any = true;
      all = all || i < plan_.rows || kind(b, r) == RowKind::kUniform;
    }
  }
  if (any) block.keys = ranges_of(block, all);
  for (const KeyRange& range : block.keys) block.width += range.count;
  largest_ = std::max(largest_, block.sequences * block.rows * block.width);
  blocks_.push_back(std::move(block));
}

// The keys that some row of the block can see; `all`: some row looks at all of them.
std::vector<KeyRange> AttentionGeometry::ranges_of(const AttentionBlock& block, bool all) const {
  std::vector<KeyRange> ranges;
  std::int64_t begin = 0, end = keys_;
  if (!all && plan_.window < length_) {
    begin = std::clamp<std::int64_t>(block.low - plan_.window, 0, keys_);
    end = std::clamp<std::int64_t>(block.high + plan_.window + 1, 0, keys_);
  }
  if (begin <= plan_.sinks) {
    begin = 0;
    end = std::max(end, plan_.sinks);
  } else if (plan_.sinks > 0) {
    ranges.push_back({0, plan_.sinks, 0});
  }
  if (begin < end) ranges.push_back({begin, end - begin, ranges.empty() ? 0 : plan_.sinks});
  return ranges;
}

ColumnSpan region_span(const AttentionBlock& block, const KeyRange& range, Region region, const AttentionPlan& plan) {
  std::int64_t begin = range.first, end = range.first + range.count;
  if (plan.has_far()) {
    switch (region) {
      case Region::kNear:
        begin = std::max(begin, block.low - plan.near_limit + 1);
        end = std::min(end, block.high + plan.near_limit);
        break;
      case Region::kLeft:
        end = std::min(end, block.high - plan.near_limit + 1);
        break;
      case Region::kRight:
        begin = std::max(begin, block.low + plan.near_limit);
        break;
    }
  } else if (region != Region::kNear) {
    end = begin;
  }
  return {begin, range.column + begin - range.first, std::max<std::int64_t>(0, end - begin)};
}

}  // namespace gau::cpu
