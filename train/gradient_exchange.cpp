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

}  // namespace

// One entry a rank in each list; those of the rank itself stay empty.
struct GradientExchange::Bucket {
  std::int64_t missing = 0;                                   // elements that are not final
  std::vector<Tensor> received;                               // contributions to the own slice, as on the wire
  std::vector<Tensor> sent;                                   // bf16 only: own contributions to other slices
  std::vector<Tensor> sums;                                   // bf16 only: sums, as on the wire
  std::vector<std::unique_ptr<Transfer>> incoming, outgoing;  // contributions
  std::vector<std::unique_ptr<Transfer>> sum_in, sum_out;
};

GradientExchange::GradientExchange(Communicator& ranks, Tensor gradients, const BucketPlan& plan, ReduceOrder order, DType wire,
                                   int sharing)
    : ranks_(ranks), gradients_(std::move(gradients)), plan_(plan), order_(order), wire_(wire), sharing_(sharing) {}

GradientExchange::~GradientExchange() = default;

void GradientExchange::begin(std::int64_t step) {
  step_ = step;
  started_ = summed_ = taken_ = 0;
  buckets_.clear();
  posted_.assign(static_cast<std::size_t>(ranks_.size()), 0);
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
  if (ranks_.size() == 1) return;
  while (started_ < plan_.buckets() && buckets_[static_cast<std::size_t>(started_)].missing == 0) start(started_++);
  if (taken_ == started_) return;
  ranks_.progress();
  while (summed_ < started_ && sum_if_here(summed_, false)) ++summed_;
  for (std::int64_t i = summed_ + 1; i < started_; ++i) complete(buckets_[static_cast<std::size_t>(i)].incoming, false);
  while (taken_ < summed_ && take_sums(taken_, false)) ++taken_;
}

void GradientExchange::finish() {
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  progress();
  // All sums that others wait for are made before this rank waits for theirs.
  for (; summed_ < started_; ++summed_) {
    sum_if_here(summed_, true);
    while (taken_ < summed_ && take_sums(taken_, false)) ++taken_;
  }
  for (; taken_ < started_; ++taken_) take_sums(taken_, true);
}

void GradientExchange::start(std::int64_t index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  const auto size = static_cast<std::size_t>(ranks_.size());
  for (auto* list : {&bucket.received, &bucket.sent, &bucket.sums}) list->resize(size);
  for (auto* list : {&bucket.incoming, &bucket.outgoing, &bucket.sum_in, &bucket.sum_out}) list->resize(size);
  const Range mine = plan_.slice(index, ranks_.rank());
  for (int peer = 0; peer < ranks_.size(); ++peer) {
    if (peer == ranks_.rank()) continue;
    const auto p = static_cast<std::size_t>(peer);
    bucket.received[p] = Tensor::empty({mine.size()}, wire_);
    bucket.incoming[p] = ranks_.receive(peer, label(MessageKind::kGradient, index), writable_bytes_of(bucket.received[p]));
    Tensor theirs = part(plan_.slice(index, peer));
    if (wire_ != gradients_.dtype()) {
      bucket.sent[p] = Tensor::empty(theirs.shape(), wire_);
      kernels::convert(theirs, bucket.sent[p]);
      theirs = bucket.sent[p];
    }
    bucket.outgoing[p] = ranks_.send(peer, label(MessageKind::kGradient, index), bytes_of(theirs));
  }
}

// All are asked, so that all advance.
bool GradientExchange::complete(const std::vector<std::unique_ptr<Transfer>>& transfers, bool wait) {
  bool all = true;
  for (const auto& transfer : transfers) {
    if (!transfer) continue;
    if (wait) ranks_.wait(*transfer);
    all = transfer->done() && all;
  }
  return all;
}

bool GradientExchange::sum_if_here(std::int64_t index, bool wait) {
  if (!complete(buckets_[static_cast<std::size_t>(index)].incoming, wait)) return false;
  add_parts(index);
  send_sum(index);
  return true;
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

// Other ranks' sums go where this rank's contributions were, once these have left. Receives are made bucket by bucket, as sums
// are sent.
void GradientExchange::post_sums(int peer) {
  const auto p = static_cast<std::size_t>(peer);
  for (std::int64_t& next = posted_[p]; next < started_; ++next) {
    Bucket& bucket = buckets_[static_cast<std::size_t>(next)];
    if (!bucket.outgoing[p]->done()) return;
    Tensor place = part(plan_.slice(next, peer));
    if (wire_ != place.dtype()) place = bucket.sums[p] = Tensor::empty(place.shape(), wire_);
    bucket.sum_in[p] = ranks_.receive(peer, label(MessageKind::kSum, next), writable_bytes_of(place));
  }
}

bool GradientExchange::take_sums(std::int64_t index, bool wait) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  bool posted = true;
  for (int peer = 0; peer < ranks_.size(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (peer == ranks_.rank()) continue;
    post_sums(peer);
    while (wait && posted_[p] <= index) {
      ranks_.wait(*buckets_[static_cast<std::size_t>(posted_[p])].outgoing[p]);
      post_sums(peer);
    }
    posted = posted && posted_[p] > index;
  }
  if (!posted) return false;
  if (!complete(bucket.sum_in, wait) || !complete(bucket.sum_out, wait)) return false;
  if (wire_ != gradients_.dtype()) {
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != ranks_.rank()) kernels::convert(bucket.sums[static_cast<std::size_t>(peer)], part(plan_.slice(index, peer)));
    }
  }
  bucket = Bucket{};
  return true;
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
