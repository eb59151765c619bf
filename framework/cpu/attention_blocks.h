// How attention is cut into pieces: blocks of query rows, and for each the key columns that some row of it can see.
//
// A block covers `sequences` sequences and `rows` query rows of each. Its logits lie in a matrix of `width` columns: the
// visible keys, packed from up to two ranges (sinks and window). Memory is O(rows · width), never O(L²).
//
// Where k and v are a part of the keys, positions count from the first of them: all that depends on distances needs to know
// nothing of parts. A query before the part has a negative position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/backend.h"

namespace gau::cpu {

/// Keys [first, first + count) at columns [column, column + count) of a block.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t column = 0;
};

struct AttentionBlock {
  std::int64_t first_sequence = 0;
  std::int64_t sequences = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t low = 0;  ///< smallest and largest position of a query in the block that sees something
  std::int64_t high = 0;
  std::vector<KeyRange> keys;
  std::int64_t width = 0;  ///< 0: nobody sees anything

  std::int64_t key_of(std::int64_t column) const {
    const KeyRange& range = column < keys.back().column ? keys.front() : keys.back();
    return range.first + column - range.column;
  }
};

/// What a query row sees.
enum class RowKind : char {
  kNothing,  ///< unused row, a sequence without tokens, or none visible in this part of its keys: output 0
  kUniform,  ///< tokens exist, none visible in the whole sequence: all keys alike, as finite masks give
  kTokens,
};

/// The geometry of one attention call: positions, kinds of rows, blocks.
class AttentionGeometry {
 public:
  AttentionGeometry(const AttentionInputs& in, const AttentionPlan& plan);

  const std::vector<AttentionBlock>& blocks() const { return blocks_; }
  /// The plan for positions that count from the first key.
  const AttentionPlan& plan() const { return plan_; }
  std::int64_t position(std::int64_t sequence, std::int64_t row) const {
    return (positions_ ? positions_[sequence * queries_ + row] : row) - first_key_;
  }
  /// What position 0 is in the whole sequence.
  std::int64_t first_key() const { return first_key_; }
  RowKind kind(std::int64_t sequence, std::int64_t row) const {
    return kinds_.empty() ? RowKind::kTokens : kinds_[static_cast<std::size_t>(sequence * queries_ + row)];
  }
  /// The mask of a sequence's keys here, or null when all keys are tokens.
  const std::int32_t* mask(std::int64_t sequence) const { return mask_ ? mask_ + sequence * length_ + first_key_ : nullptr; }
  std::int64_t batch() const { return batch_; }
  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  /// Largest rows · width · sequences of a block.
  std::int64_t largest() const { return largest_; }

 private:
  void classify_rows(const AttentionPlan& plan);
  void make_block(std::int64_t sequence, std::int64_t sequences, std::int64_t row, std::int64_t rows);
  std::vector<KeyRange> ranges_of(const AttentionBlock& block, bool all) const;

  std::int64_t batch_, queries_, keys_;
  std::int64_t first_key_, length_;  // of whole sequences
  AttentionPlan plan_;
  const std::int32_t* positions_;
  const std::int32_t* mask_;
  std::vector<RowKind> kinds_;
  std::vector<AttentionBlock> blocks_;
  std::int64_t largest_ = 0;
};

/// Columns [begin, end) of a key range that can lie in `region` for some query of the block; empty when begin ≥ end.
struct ColumnSpan {
  std::int64_t first_key = 0;
  std::int64_t column = 0;
  std::int64_t count = 0;
};
ColumnSpan region_span(const AttentionBlock& block, const KeyRange& range, Region region, const AttentionPlan& plan);

}  // namespace gau::cpu
