#include "framework/cpu/attention_blocks.h"

#include "framework/attention_block_rows.h"

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
      positions_(in.rows.defined() ? in.rows.data<std::int32_t>() : nullptr),
      mask_(in.key_mask.defined() ? in.key_mask.data<std::int32_t>() : nullptr) {
  classify_rows(plan);
  const std::int64_t rows = std::min(queries_, kAttentionBlockRows);
  const std::int64_t together =
      queries_ > rows ? 1 : std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, rows * keys_));
  for (std::int64_t b = 0; b < batch_; b += together) {
    for (std::int64_t r = 0; r < queries_; r += rows) {
      make_block(b, std::min(together, batch_ - b), r, std::min(rows, queries_ - r), plan);
    }
  }
}

void AttentionGeometry::classify_rows(const AttentionPlan& plan) {
  if (!mask_ && !positions_ && !plan.mask_diagonal) return;
  kinds_.assign(static_cast<std::size_t>(batch_ * queries_), RowKind::kTokens);
  std::vector<std::int64_t> before(static_cast<std::size_t>(keys_) + 1, 0);  // tokens among the first j keys
  for (std::int64_t b = 0; b < batch_; ++b) {
    const std::int32_t* valid = mask(b);
    for (std::int64_t j = 0; j < keys_; ++j) {
      before[static_cast<std::size_t>(j) + 1] = before[static_cast<std::size_t>(j)] + (!valid || valid[j] != 0);
    }
    const auto tokens = [&](std::int64_t begin, std::int64_t end) {
      return begin < end ? before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(begin)] : 0;
    };
    for (std::int64_t r = 0; r < queries_; ++r) {
      RowKind& kind = kinds_[static_cast<std::size_t>(b * queries_ + r)];
      const std::int64_t i = position(b, r);
      if (i < 0 || tokens(0, keys_) == 0) {
        kind = RowKind::kNothing;
        continue;
      }
      std::int64_t seen = tokens(0, keys_);
      if (i >= plan.rows && plan.window < keys_) {
        const std::int64_t begin = std::max<std::int64_t>(0, i - plan.window);
        const std::int64_t end = std::min(keys_, i + plan.window + 1);
        seen = tokens(begin, end) + tokens(0, std::min(begin, plan.sinks)) + tokens(end, std::min(keys_, plan.sinks));
      }
      if (plan.mask_diagonal) seen -= tokens(i, std::min(keys_, i + 1));
      if (seen == 0) kind = RowKind::kUniform;
    }
  }
}

void AttentionGeometry::make_block(std::int64_t sequence, std::int64_t sequences, std::int64_t row, std::int64_t rows,
                                   const AttentionPlan& plan) {
  AttentionBlock block;
  block.first_sequence = sequence;
  block.sequences = sequences;
  block.first_row = row;
  block.rows = rows;
  block.low = AttentionPlan::kUnlimited;
  block.high = -1;
  bool all = false;
  for (std::int64_t b = sequence; b < sequence + sequences; ++b) {
    for (std::int64_t r = row; r < row + rows; ++r) {
      const std::int64_t i = position(b, r);
      if (i < 0) continue;
      block.low = std::min(block.low, i);
      block.high = std::max(block.high, i);
      all = all || i < plan.rows || kind(b, r) == RowKind::kUniform;
    }
  }
  if (block.high < 0) block.low = block.high = 0;
  std::int64_t begin = 0, end = keys_;
  if (!all && plan.window < keys_) {
    begin = std::max<std::int64_t>(0, block.low - plan.window);
    end = std::min(keys_, block.high + plan.window + 1);
  }
  if (begin <= plan.sinks) {
    begin = 0;
  } else if (plan.sinks > 0) {
    block.keys.push_back({0, plan.sinks, 0});
  }
  end = std::max(end, std::min(keys_, plan.sinks));
  block.keys.push_back({begin, end - begin, block.keys.empty() ? 0 : plan.sinks});
  for (const KeyRange& range : block.keys) block.width += range.count;
  largest_ = std::max(largest_, block.sequences * block.rows * block.width);
  blocks_.push_back(std::move(block));
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
