#include "framework/rank_group.h"

#include <algorithm>
#include <cstring>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/tensor_bytes.h"

namespace gau {
namespace {

/// Rows [begin, end) of sequence b of a tensor [B, N, C].
Tensor rows_of(const Tensor& x, std::int64_t b, std::int64_t begin, std::int64_t end) {
  return x.segment((b * x.dim(1) + begin) * x.dim(2), {end - begin, x.dim(2)});
}

void copy(const Tensor& from, Tensor to) { std::memcpy(to.raw(), from.raw(), from.bytes()); }

/// Where each member's rows begin in a buffer of them.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t count : counts) starts.push_back(starts.back() + count);
  return starts;
}

}  // namespace

RankGroup RankGroup::of(Communicator& ranks, int count, SequenceExchange sequence_exchange) {
  check(count >= 1 && ranks.size() % count == 0, ExitCode::kUsage, "{} ranks cannot share each sequence: there are {} ranks",
        count, ranks.size());
  return {&ranks, ranks.rank() / count * count, count, sequence_exchange};
}

void RankGroup::gather(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& mine,
                       Tensor all) const {
  const auto me = static_cast<std::size_t>(index());
  RowTransfers transfers(*this, label);
  for (std::int64_t b = 0; b < all.dim(0); ++b) {
    const Tensor own = rows_of(mine, b, 0, bounds[me + 1] - bounds[me]);
    for (int p = 0; p < count; ++p) {
      const auto at = static_cast<std::size_t>(p);
      const Tensor place = rows_of(all, b, bounds[at], bounds[at + 1]);
      if (at == me) {
        copy(own, place);
        continue;
      }
      transfers.receive(p, place);
      transfers.send(p, own);
    }
  }
  transfers.wait();
}

void RankGroup::scatter_sum(const MessageLabel& label, const std::vector<std::int64_t>& bounds, const Tensor& all,
                            Tensor mine) const {
  const auto me = static_cast<std::size_t>(index());
  const std::int64_t batch = all.dim(0), own = bounds[me + 1] - bounds[me];
  std::vector<Tensor> parts;  // by member: its share of this member's rows
  RowTransfers transfers(*this, label);
  for (int p = 0; p < count; ++p) {
    const auto at = static_cast<std::size_t>(p);
    parts.push_back(Tensor::empty({batch, own, all.dim(2)}, all.dtype()));
    for (std::int64_t b = 0; b < batch; ++b) {
      const Tensor place = rows_of(parts.back(), b, 0, own);
      if (at == me) {
        copy(rows_of(all, b, bounds[me], bounds[me + 1]), place);
        continue;
      }
      transfers.receive(p, place);
      transfers.send(p, rows_of(all, b, bounds[at], bounds[at + 1]));
    }
  }
  transfers.wait();
  kernels::fill(mine, 0);
  if (own == 0) return;
  for (std::size_t p = 1; p < parts.size(); ++p) kernels::add(parts[0], parts[p], parts[0]);
  for (std::int64_t b = 0; b < batch; ++b) copy(rows_of(parts[0], b, 0, own), rows_of(mine, b, 0, own));
}

void RankGroup::exchange(const MessageLabel& label, const std::vector<std::int64_t>& sent, const Tensor& from,
                         const std::vector<std::int64_t>& received, Tensor to) const {
  const std::int64_t columns = to.columns();
  const std::vector<std::int64_t> out = starts_of(sent), in = starts_of(received);
  RowTransfers transfers(*this, label);
  for (int p = 0; p < count; ++p) {
    const auto at = static_cast<std::size_t>(p);
    const Tensor leaving = from.segment(out[at] * columns, {sent[at], columns});
    const Tensor arriving = to.segment(in[at] * columns, {received[at], columns});
    if (p == index()) {
      copy(leaving, arriving);
      continue;
    }
    transfers.receive(p, arriving);
    transfers.send(p, leaving);
  }
  transfers.wait();
}

void RowTransfers::send(int member, const Tensor& data) {
  if (!data.defined() || data.size() == 0) return;
  sends_.push_back({data, group_.ranks->send(group_.first + member, label_, bytes_of(data))});
}

void RowTransfers::receive(int member, const Tensor& data) {
  if (!data.defined() || data.size() == 0) return;
  receives_.push_back({data, group_.ranks->receive(group_.first + member, label_, writable_bytes_of(data))});
}

void RowTransfers::progress() {
  group_.ranks->progress();
  for (const Started& one : receives_) one.transfer->done();
}

void RowTransfers::wait() {
  wait_for(receives_);
  wait_for(sends_);
}

void RowTransfers::wait_for(std::vector<Started>& list) {
  for (const Started& one : list) group_.ranks->wait(*one.transfer);
  list.clear();
}

}  // namespace gau
