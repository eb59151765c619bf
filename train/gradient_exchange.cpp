// A bucket's way: start (contributions sent and awaited), sum of the own slice, sums of the other slices.
#include "train/gradient_exchange.h"

#include <utility>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/tensor_bytes.h"

namespace gau {
namespace {

/// Elements in both; an empty range at the start of one of them when there are none.
Range common(Range a, Range b) {
  const Range both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.size() > 0 ? both : Range{a.begin, a.begin};
}

/// The parts of all ranks, in the order of ranks or as GradientExchange has them, become one sum, in the storage of the first.
/// Others may be overwritten.
void add_in_order(std::vector<Tensor>& parts, ReduceOrder order) {
  const std::size_t count = parts.size();
  if (order == ReduceOrder::kRank) {
    for (std::size_t r = 1; r < count; ++r) kernels::add(parts[0], parts[r], parts[0]);
    return;
  }
  for (std::size_t stride = 1; stride < count; stride *= 2) {
    for (std::size_t r = 0; r + stride < count; r += 2 * stride) kernels::add(parts[r], parts[r + stride], parts[r]);
  }
}

/// The first transfer that is not done; null when all are. All are asked, so that all advance. Entries may be empty.
Transfer* first_open(const std::vector<std::unique_ptr<Transfer>>& transfers) {
  Transfer* first = nullptr;
  for (const auto& transfer : transfers) {
    if (transfer && !transfer->done() && first == nullptr) first = transfer.get();
  }
  return first;
}

}  // namespace

// One entry a rank in each list; those of the rank itself stay empty.
struct GradientExchange::Bucket {
  std::int64_t missing = 0;      // elements that are not final
  std::vector<Tensor> received;  // contributions to the own slice, as on the wire
  std::vector<Tensor> sent;      // bf16 only: own contributions to other slices
  std::vector<Tensor> sums;      // bf16 only: sums, as on the wire
  Transfers incoming, outgoing;  // contributions
  Transfers sum_in, sum_out;
};

GradientExchange::GradientExchange(Communicator& ranks, Tensor gradients, const BucketPlan& plan, ReduceOrder order, DType wire,
                                   int sharing)
    : ranks_(ranks), gradients_(std::move(gradients)), plan_(plan), order_(order), wire_(wire), sharing_(sharing) {}

GradientExchange::~GradientExchange() = default;

GradientExchange::Bucket& GradientExchange::bucket(std::int64_t index) { return buckets_[static_cast<std::size_t>(index)]; }

void GradientExchange::begin(std::int64_t step) {
  step_ = step;
  started_ = summed_ = taken_ = 0;
  buckets_.clear();
  if (ranks_.size() == 1) return;
  buckets_.resize(static_cast<std::size_t>(plan_.buckets()));
  for (std::int64_t i = 0; i < plan_.buckets(); ++i) buckets_[static_cast<std::size_t>(i)].missing = plan_.bucket(i).size();
}

void GradientExchange::ready(Range elements) {
  if (ranks_.size() == 1) return;
  for (std::int64_t i = 0; i < plan_.buckets(); ++i) {
    const Range bucket = plan_.bucket(i);
    const std::int64_t common = std::min(bucket.end, elements.end) - std::max(bucket.begin, elements.begin);
    if (common > 0) buckets_[static_cast<std::size_t>(i)].missing -= common;
  }
  progress();
}

void GradientExchange::progress() {
  if (ranks_.size() == 1 || advancing_) return;
  advancing_ = true;
  try {
    advance();
  } catch (...) {
    advancing_ = false;
    throw;
  }
  advancing_ = false;
}

// Own contributions first, since others wait for them, then sums, for the same reason. What a rank may send it is told by a
// receive: one bucket of contributions and one of sums are asked for at a time. Many at once fill the queues of a slow network
// until it drops them (at 1 Gbit/s an exchange then took half as long again), and later ones only hold up the oldest.
void GradientExchange::advance() {
  while (started_ < plan_.buckets() && bucket(started_).missing == 0) start(started_++);
  if (taken_ == started_) return;
  ranks_.progress();
  while (summed_ < started_) {
    expect_parts(summed_);
    if (first_open(bucket(summed_).incoming) != nullptr) break;
    add_parts(summed_);
    send_sum(summed_++);
  }
  do {
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != ranks_.rank()) expect_sum(peer);
    }
    first_open(bucket(taken_).sum_in);
    if (taken_ == summed_ || awaited() != nullptr) return;
    release(taken_++);
  } while (taken_ < started_);
}

Transfer* GradientExchange::awaited() {
  if (taken_ == started_) return nullptr;
  Bucket& oldest = bucket(taken_);
  if (summed_ == taken_) return first_open(oldest.incoming);
  for (std::size_t peer = 0; peer < oldest.sum_in.size(); ++peer) {
    if (oldest.outgoing[peer] && !oldest.sum_in[peer]) return oldest.outgoing[peer].get();
  }
  Transfer* const sum = first_open(oldest.sum_in);
  return sum != nullptr ? sum : first_open(oldest.sum_out);
}

// The wait for one message, which is known by what it is about: it may be gone once it was seen to be done. Meanwhile all
// others advance.
class GradientExchange::Wait final : public Transfer {
 public:
  Wait(GradientExchange& exchange, const Transfer& message) : Transfer(message.peer(), message.label()), exchange_(exchange) {}
  bool done() override {
    exchange_.progress();
    const Transfer* const now = exchange_.awaited();
    return now == nullptr || now->peer() != peer() || !(now->label() == label());
  }

 private:
  GradientExchange& exchange_;
};

void GradientExchange::finish() {
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  for (progress(); taken_ < started_; progress()) {
    const Transfer* const message = awaited();
    if (message == nullptr) continue;
    Wait wait(*this, *message);
    ranks_.wait(wait);
  }
}

void GradientExchange::start(std::int64_t index) {
  Bucket& started = bucket(index);
  const auto size = static_cast<std::size_t>(ranks_.size());
  for (auto* list : {&started.received, &started.sent, &started.sums}) list->resize(size);
  for (auto* list : {&started.incoming, &started.outgoing, &started.sum_in, &started.sum_out}) list->resize(size);
  for (int peer = 0; peer < ranks_.size(); ++peer) {
    if (peer == ranks_.rank()) continue;
    const auto p = static_cast<std::size_t>(peer);
    Tensor theirs = part(plan_.slice(index, peer));
    if (wire_ != gradients_.dtype()) {
      started.sent[p] = Tensor::empty(theirs.shape(), wire_);
      kernels::convert(theirs, started.sent[p]);
      theirs = started.sent[p];
    }
    started.outgoing[p] = ranks_.send(peer, label(MessageKind::kGradient, index), bytes_of(theirs));
  }
}

void GradientExchange::expect_parts(std::int64_t index) {
  Bucket& expected = bucket(index);
  const Range mine = plan_.slice(index, ranks_.rank());
  for (int peer = 0; peer < ranks_.size(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (peer == ranks_.rank() || expected.incoming[p]) continue;
    expected.received[p] = Tensor::empty({mine.size()}, wire_);
    expected.incoming[p] = ranks_.receive(peer, label(MessageKind::kGradient, index), writable_bytes_of(expected.received[p]));
  }
}

void GradientExchange::add_parts(std::int64_t index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  Tensor own = part(plan_.slice(index, ranks_.rank()));
  std::vector<Tensor> parts;
  for (int member = 0; member < sharing_; ++member) {
    for (int rank = member; rank < ranks_.size(); rank += sharing_) {
      parts.push_back(rank == ranks_.rank() ? own : bucket.received[static_cast<std::size_t>(rank)].to(own.dtype()));
    }
  }
  add_in_order(parts, order_);
  if (!parts[0].same_storage(own)) kernels::convert(parts[0], own);
  bucket.received.clear();
}

void GradientExchange::send_sum(std::int64_t index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  Tensor own = part(plan_.slice(index, ranks_.rank()));
  Tensor sum = own;
  if (wire_ != own.dtype()) {
    Tensor& rounded = bucket.sums[static_cast<std::size_t>(ranks_.rank())];
    rounded = Tensor::empty(own.shape(), wire_);
    kernels::convert(own, rounded);
    kernels::convert(rounded, own);
    sum = rounded;
  }
  for (int peer = 0; peer < ranks_.size(); ++peer) {
    if (peer == ranks_.rank()) continue;
    bucket.sum_out[static_cast<std::size_t>(peer)] = ranks_.send(peer, label(MessageKind::kSum, index), bytes_of(sum));
  }
}

// The oldest bucket's sum goes where this rank's contribution was, once that has left.
void GradientExchange::expect_sum(int peer) {
  const auto p = static_cast<std::size_t>(peer);
  Bucket& oldest = bucket(taken_);
  if (oldest.sum_in[p] || !oldest.outgoing[p]->done()) return;
  Tensor place = part(plan_.slice(taken_, peer));
  if (wire_ != place.dtype()) place = oldest.sums[p] = Tensor::empty(place.shape(), wire_);
  oldest.sum_in[p] = ranks_.receive(peer, label(MessageKind::kSum, taken_), writable_bytes_of(place));
}

void GradientExchange::release(std::int64_t index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  if (wire_ != gradients_.dtype()) {
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != ranks_.rank()) kernels::convert(bucket.sums[static_cast<std::size_t>(peer)], part(plan_.slice(index, peer)));
    }
  }
  bucket = Bucket{};
}

Tensor collect_slices(Communicator& ranks, const Tensor& own, const BucketPlan& plan, const std::vector<Range>& wanted,
                      std::int64_t step) {
  const auto me = static_cast<std::size_t>(ranks.rank());
  Tensor collected = Tensor::empty({wanted[me].size()}, own.dtype());
  std::vector<std::unique_ptr<Transfer>> transfers;
  std::int64_t at = 0;  // of the own slice in `own`
  for (std::int64_t i = 0; i < plan.buckets(); ++i) {
    const MessageLabel label{MessageKind::kMoments, step, i};
    const Range mine = plan.slice(i, ranks.rank());
    for (int peer = 0; peer < ranks.size(); ++peer) {
      const Range given = common(mine, wanted[static_cast<std::size_t>(peer)]);
      const Range taken = common(plan.slice(i, peer), wanted[me]);
      Tensor from, to;
      if (given.size() > 0) from = own.segment(at + given.begin - mine.begin, {given.size()});
      if (taken.size() > 0) to = collected.segment(taken.begin - wanted[me].begin, {taken.size()});
      if (peer == ranks.rank()) {
        if (to.defined()) kernels::convert(from, to);
        continue;
      }
      if (to.defined()) transfers.push_back(ranks.receive(peer, label, writable_bytes_of(to)));
      if (from.defined()) transfers.push_back(ranks.send(peer, label, bytes_of(from)));
    }
    at += mine.size();
  }
  for (const auto& transfer : transfers) ranks.wait(*transfer);
  return collected;
}

void share_slices(Communicator& ranks, Tensor flat, const BucketPlan& plan, const MessageLabel& label) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::int64_t i = 0; i < plan.buckets(); ++i) {
    const MessageLabel here{label.kind, label.step, i};
    const Range mine = plan.slice(i, ranks.rank());
    const Tensor own = flat.segment(mine.begin, {mine.size()});
    for (int peer = 0; peer < ranks.size(); ++peer) {
      if (peer == ranks.rank()) continue;
      const Range slice = plan.slice(i, peer);
      Tensor theirs = flat.segment(slice.begin, {slice.size()});
      transfers.push_back(ranks.receive(peer, here, writable_bytes_of(theirs)));
      transfers.push_back(ranks.send(peer, here, bytes_of(own)));
    }
  }
  for (const auto& transfer : transfers) ranks.wait(*transfer);
}

}  // namespace gau
