#include "layers/shared_rows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "framework/attention_block_rows.h"
#include "framework/error.h"

namespace gau {
namespace {

constexpr std::int64_t kStandInWidth = 8;  // of a group without rows

/// Blocks of `rows` dealt out to `count` members: member p has [bounds[p], bounds[p + 1]).
std::vector<std::int64_t> deal(std::int64_t rows, int count) {
  const std::int64_t blocks = (rows + kAttentionBlockRows - 1) / kAttentionBlockRows;
  std::vector<std::int64_t> bounds;
  for (std::int64_t p = 0; p <= count; ++p) bounds.push_back(std::min(rows, p * blocks / count * kAttentionBlockRows));
  return bounds;
}

int member_of(const std::vector<std::int64_t>& bounds, std::int64_t row) {
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), row) - bounds.begin()) - 1;
}

Tensor list_of(std::vector<std::int32_t> values) {
  if (values.empty()) values.push_back(-1);
  const auto size = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {size});
}

Tensor none(const Shape& shape) {
  return Tensor::from(std::vector<std::int32_t>(static_cast<std::size_t>(shape.size()), -1), shape);
}

}  // namespace

SharedRows::SharedRows(const RankGroup& group, std::int64_t batch, std::int64_t length, std::int64_t step)
    : group_(group), batch_(batch), length_(length), step_(step), bounds_(deal(length, group.count)) {
  const auto me = static_cast<std::size_t>(group.index());
  const std::int64_t begin = bounds_[me], own = bounds_[me + 1] - begin, rows = std::max<std::int64_t>(1, own);
  flat_ = none({batch * rows});
  positions_ = none({batch, rows});
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t r = 0; r < own; ++r) {
      flat_.data<std::int32_t>()[b * rows + r] = static_cast<std::int32_t>(b * length + begin + r);
      positions_.data<std::int32_t>()[b * rows + r] = static_cast<std::int32_t>(begin + r);
    }
  }
}

int SharedRows::owner_of(std::int64_t position) const { return member_of(bounds_, position); }

Tensor SharedRows::own(const Tensor& whole) const {
  if (!whole.defined()) return {};
  Tensor part = Tensor::zeros(positions_.shape(), DType::kI32);
  const auto from = whole.span<std::int32_t>();
  const auto rows = std::as_const(flat_).span<std::int32_t>();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] >= 0) part.data<std::int32_t>()[r] = from[static_cast<std::size_t>(rows[r])];
  }
  return part;
}

QueryRows SharedRows::all() const {
  QueryRows rows;
  rows.flat = rows.grouped = flat_;
  rows.positions = positions_;
  rows.shared = this;
  rows.queries = {bounds_, {}};
  return rows;
}

QueryRows SharedRows::wanted(const Tensor& flat) const {
  if (!flat.defined()) return all();
  const QueryRows whole = group_rows(flat, batch_, length_);
  const std::int64_t width = whole.positions.dim(1);
  const std::vector<std::int64_t> bounds = deal(width, group_.count);
  const auto me = static_cast<std::size_t>(group_.index());
  const std::int64_t begin = bounds[me], own = bounds[me + 1] - begin, mine_width = own > 0 ? own : kStandInWidth;
  const auto slots = whole.ungroup.span<std::int32_t>();
  const auto numbers = flat.span<std::int32_t>();

  QueryRows rows;
  rows.shared = this;
  rows.queries = {bounds, whole.positions};
  rows.grouped = none({batch_ * mine_width});
  rows.positions = none({batch_, mine_width});
  rows.group = none({batch_ * mine_width});
  std::vector<std::int32_t> listed, ungroup;
  std::vector<int> receiver(slots.size(), -1);
  for (std::size_t m = 0; m < slots.size(); ++m) {
    if (slots[m] < 0) continue;
    receiver[m] = member_of(bounds, slots[m] % width);
    if (receiver[m] != group_.index()) continue;
    const std::int64_t at = slots[m] / width * mine_width + slots[m] % width - begin;
    rows.grouped.data<std::int32_t>()[at] = numbers[m];
    rows.positions.data<std::int32_t>()[at] = static_cast<std::int32_t>(numbers[m] % length_);
    rows.group.data<std::int32_t>()[at] = static_cast<std::int32_t>(listed.size());
    listed.push_back(numbers[m]);
    ungroup.push_back(static_cast<std::int32_t>(at));
    rows.mine.push_back(static_cast<std::int64_t>(m));
  }
  rows.flat = list_of(listed);
  rows.ungroup = list_of(ungroup);
  rows.moves = moves_to(whole, receiver);
  return rows;
}

ops::RowMoves SharedRows::moves_to(const QueryRows& whole, const std::vector<int>& receiver) const {
  const auto count = static_cast<std::size_t>(group_.count);
  const int me = group_.index();
  const std::int64_t rows = positions_.dim(1), begin = bounds_[static_cast<std::size_t>(me)];
  const auto numbers = whole.flat.span<std::int32_t>();
  std::vector<std::vector<std::int32_t>> leaving(count), arriving(count);  // by member: rows of the input; rows of the result
  std::int32_t result = 0;
  for (std::size_t m = 0; m < receiver.size(); ++m) {
    if (receiver[m] < 0) continue;
    const std::int64_t position = numbers[m] % length_;
    const int owner = owner_of(position);
    if (owner == me) {
      leaving[static_cast<std::size_t>(receiver[m])].push_back(
          static_cast<std::int32_t>(numbers[m] / length_ * rows + position - begin));
    }
    if (receiver[m] == me) arriving[static_cast<std::size_t>(owner)].push_back(result++);
  }
  ops::RowMoves moves;
  std::vector<std::int32_t> all_leaving, places(static_cast<std::size_t>(result));
  std::int32_t arrival = 0;
  for (std::size_t p = 0; p < count; ++p) {
    moves.sent.push_back(static_cast<std::int64_t>(leaving[p].size()));
    moves.received.push_back(static_cast<std::int64_t>(arriving[p].size()));
    all_leaving.insert(all_leaving.end(), leaving[p].begin(), leaving[p].end());
    for (const std::int32_t row : arriving[p]) places[static_cast<std::size_t>(row)] = arrival++;
  }
  moves.leaving = list_of(all_leaving);
  moves.arriving = list_of(places);
  return moves;
}

template <class T>
Tensor SharedRows::by_row(const QueryRows& rows, const Tensor& values, std::int64_t count) const {
  Tensor own = Tensor::zeros({1, count, 1}, values.dtype());
  for (std::size_t m = 0; m < rows.mine.size(); ++m) own.data<T>()[rows.mine[m]] = values.data<T>()[m];
  std::vector<std::int64_t> bounds;
  for (std::int64_t p = 0; p <= group_.count; ++p) bounds.push_back(p * count);
  Tensor parts = Tensor::empty({1, bounds.back(), 1}, values.dtype());
  group_.gather(sequence(-1).forward_label(), bounds, own, parts);
  // Each row is some member's alone, and 0 with the others.
  Tensor all = Tensor::zeros({count}, values.dtype());
  for (std::int64_t i = 0; i < bounds.back(); ++i) all.data<T>()[i % count] += std::as_const(parts).data<T>()[i];
  return all;
}

template Tensor SharedRows::by_row<double>(const QueryRows&, const Tensor&, std::int64_t) const;
template Tensor SharedRows::by_row<std::int32_t>(const QueryRows&, const Tensor&, std::int64_t) const;

}  // namespace gau
