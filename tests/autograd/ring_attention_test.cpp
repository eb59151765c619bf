// What goes round a ring and what does not: whose keys travel to whom, how much memory it takes, and what skipping may leave
// out. That the results are those of one rank is shown by tests/layers/ring_test.cpp for every method.
#include "autograd/ring_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "framework/allocator.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/random.h"
#include "framework/thread_ranks.h"

namespace gau {
namespace {

/// Passes everything on and counts the bytes sent to each rank, by kind.
class CountingRanks final : public Communicator {
 public:
  explicit CountingRanks(Communicator& inner)
      : Communicator(inner.rank(), std::vector<std::string>(static_cast<std::size_t>(inner.size()), "thread")), inner_(inner) {}

  std::unique_ptr<Transfer> send(int peer, const MessageLabel& label, std::span<const std::byte> data) override {
    sent[{label.kind, peer}] += static_cast<std::int64_t>(data.size());
    return inner_.send(peer, label, data);
  }
  std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte> data) override {
    return inner_.receive(peer, label, data);
  }
  void progress() override { inner_.progress(); }

  std::map<std::pair<MessageKind, int>, std::int64_t> sent;

 private:
  Communicator& inner_;
};

Variable random_rows(const Shape& shape, DType dtype, std::uint64_t seed, double scale = 1) {
  Tensor x = Tensor::empty(shape, DType::kF64);
  const RandomKey key{seed, 0, Site::kSynthetic, 0};
  std::uint32_t i = 0;
  for (double& value : x.span<double>()) value = scale * (2 * key.uniform(i++, 0, 0) - 1);
  return Variable(x.to(dtype), true);
}

Tensor positions_from(std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> list;
  for (std::int64_t i = begin; i < end; ++i) list.push_back(static_cast<std::int32_t>(i));
  return Tensor::from(list, {1, end - begin});
}

constexpr std::int64_t kWidth = 16, kValues = 64;

/// Attention and its gradients of one sequence whose rows `bounds` deals out.
void attend(const RankGroup& group, const std::vector<std::int64_t>& bounds, const AttentionPlan& plan) {
  const auto me = static_cast<std::size_t>(group.index());
  const std::int64_t own = bounds[me + 1] - bounds[me];
  ops::AttentionVariables in;
  in.q_near = random_rows({1, own, kWidth}, DType::kF32, 1);
  in.k_near = random_rows({1, own, kWidth}, DType::kF32, 2);
  in.v = random_rows({1, own, kValues}, DType::kF32, 3);
  in.rows = positions_from(bounds[me], bounds[me + 1]);
  const ops::SharedSequence shared{group, bounds, 0, 0};
  const Variable out = ops::shared_attention(in, plan, {}, shared, {bounds, {}});
  Tensor ones = Tensor::empty(out.shape(), DType::kF32);
  kernels::fill(ones, 1);
  backward(ops::weighted_sum(out, ones));
}

using Bytes = std::map<std::pair<MessageKind, int>, std::int64_t>;

/// What each of four ranks sends.
std::vector<Bytes> traffic(const AttentionPlan& plan) {
  const std::vector<std::int64_t> bounds{0, 100, 228, 300, 400};
  std::vector<Bytes> sent(4);
  run_as_threads(4, [&](Communicator& communicator) {
    CountingRanks counting(communicator);
    attend(RankGroup::of(counting, 4, SequenceExchange::kRing), bounds, plan);
    sent[static_cast<std::size_t>(communicator.rank())] = counting.sent;
  });
  return sent;
}

TEST(RingAttention, EachPartGoesOnceToEachMemberThatSeesIt) {
  const std::vector<Bytes> all = traffic({});
  AttentionPlan near;
  near.window = 20;
  const std::vector<Bytes> window = traffic(near);
  AttentionPlan arrow = near;
  arrow.sinks = 4;
  const std::vector<Bytes> sinks = traffic(arrow);
  const std::vector<std::int64_t> rows{100, 128, 72, 100};
  for (int from = 0; from < 4; ++from) {
    const auto at = static_cast<std::size_t>(from);
    for (int to = 0; to < 4; ++to) {
      if (to == from) continue;
      SCOPED_TRACE(fmt::format("{} to {}", from, to));
      const auto bytes = [&](const std::vector<Bytes>& sent, MessageKind kind) {
        const auto found = sent[at].find({kind, to});
        return found == sent[at].end() ? 0 : found->second;
      };
      // Keys and values twice, forward and backward; their gradients to the owner.
      const auto part = [&](int owner) { return rows[static_cast<std::size_t>(owner)] * (kWidth + kValues) * 4; };
      EXPECT_EQ(bytes(all, MessageKind::kKeys), 2 * part(from));
      EXPECT_EQ(bytes(all, MessageKind::kKeyGradients), part(to));
      const bool neighbours = std::abs(from - to) == 1;
      EXPECT_EQ(bytes(window, MessageKind::kKeys), neighbours ? 2 * part(from) : 0);
      EXPECT_EQ(bytes(window, MessageKind::kKeyGradients), neighbours ? part(to) : 0);
      EXPECT_EQ(bytes(sinks, MessageKind::kKeys), neighbours || from == 0 ? 2 * part(from) : 0);
    }
  }
}

/// Rows [begin, end) of each sequence of a tensor [B, N, C].
Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
  Tensor part = Tensor::empty({x.dim(0), end - begin, x.dim(2)}, x.dtype());
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    kernels::convert(x.segment((b * x.dim(1) + begin) * x.dim(2), {end - begin, x.dim(2)}),
                     part.segment(b * (end - begin) * x.dim(2), {end - begin, x.dim(2)}));
  }
  return part;
}

double difference(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(a.at(i) - b.at(i));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

// A row that sees nothing looks at all keys alike, those of padding and of all members.
TEST(RingAttention, RowsThatSeeNothingLookAtAllMembersKeys) {
  constexpr std::int64_t kLength = 400;
  const std::vector<std::int64_t> bounds{0, 100, 228, 300, kLength};
  AttentionPlan plan;
  plan.window = 12;
  std::vector<std::int32_t> mask(2 * kLength, 1);
  std::fill(mask.begin() + 140, mask.begin() + 190, 0);  // a hole in the second member's part, wider than two windows
  ops::AttentionVariables whole;
  whole.q_near = random_rows({2, kLength, kWidth}, DType::kF64, 1);
  whole.k_near = random_rows({2, kLength, kWidth}, DType::kF64, 2);
  whole.v = random_rows({2, kLength, kValues}, DType::kF64, 3);
  whole.key_mask = Tensor::from(mask, {2, kLength});
  const Tensor dout = random_rows({2, kLength, kValues}, DType::kF64, 4).value();
  const Variable expected = ops::attention(whole, plan, {});
  backward(ops::weighted_sum(expected, dout));
  run_as_threads(4, [&](Communicator& communicator) {
    const auto me = static_cast<std::size_t>(communicator.rank());
    const auto own = [&](const Tensor& x) { return rows_of(x, bounds[me], bounds[me + 1]); };
    ops::AttentionVariables in;
    in.q_near = Variable(own(whole.q_near.value()), true);
    in.k_near = Variable(own(whole.k_near.value()), true);
    in.v = Variable(own(whole.v.value()), true);
    in.key_mask = whole.key_mask;
    std::vector<std::int32_t> rows;
    for (int b = 0; b < 2; ++b) {
      for (std::int64_t i = bounds[me]; i < bounds[me + 1]; ++i) rows.push_back(static_cast<std::int32_t>(i));
    }
    in.rows = Tensor::from(rows, {2, bounds[me + 1] - bounds[me]});
    const RankGroup group = RankGroup::of(communicator, 4, SequenceExchange::kRing);
    const Variable out = ops::shared_attention(in, plan, {}, {group, bounds, 0, 0}, {bounds, {}});
    backward(ops::weighted_sum(out, own(dout)));
    EXPECT_LE(difference(out.value(), own(expected.value())), 1e-13);
    EXPECT_LE(difference(in.q_near.grad(), own(whole.q_near.grad())), 1e-12);
    EXPECT_LE(difference(in.k_near.grad(), own(whole.k_near.grad())), 1e-12);
    EXPECT_LE(difference(in.v.grad(), own(whole.v.grad())), 1e-12);
  });
}

/// The peak of what all ranks together hold.
std::size_t peak_of(SequenceExchange exchange, int ranks) {
  std::vector<std::int64_t> bounds;
  for (std::int64_t p = 0; p <= ranks; ++p) bounds.push_back(p * 4096 / ranks);
  const std::size_t before = allocator::in_use();
  allocator::reset_peak();
  run_as_threads(ranks, [&](Communicator& communicator) { attend(RankGroup::of(communicator, ranks, exchange), bounds, {}); });
  return allocator::peak() - before;
}

TEST(RingAttention, NeedsLessMemoryThanGathering) {
  for (const int ranks : {2, 4, 8}) {
    const auto gathered = static_cast<double>(peak_of(SequenceExchange::kGather, ranks));
    const auto ring = static_cast<double>(peak_of(SequenceExchange::kRing, ranks));
    EXPECT_LT(ring, (ranks == 2 ? 0.9 : 0.6) * gathered) << ranks << " ranks";
  }
}

// Each part has one key of weight 1, and many that together weigh 0.45 of what a row may leave out beside its largest weight.
// Parts that left out so much each would leave out four times that beside a largest weight that is a quarter.
TEST(RingAttention, SkippingKeepsToTheBoundOfTheRow) {
  constexpr std::int64_t kRanks = 4, kEach = 512;
  constexpr double kSkip = 1e-2;
  std::vector<std::int64_t> bounds;
  for (std::int64_t p = 0; p <= kRanks; ++p) bounds.push_back(p * kEach);
  run_as_threads(kRanks, [&](Communicator& communicator) {
    const RankGroup group = RankGroup::of(communicator, kRanks, SequenceExchange::kRing);
    std::vector<double> logits(kEach, std::log(0.45 * kSkip / (kEach - 1))), values(kEach, 1);
    logits[0] = values[0] = 0;
    ops::AttentionVariables in;
    in.q_near = Variable(Tensor::from(std::vector<double>(kEach, 1), {1, kEach, 1}));
    in.k_near = Variable(Tensor::from(logits, {1, kEach, 1}));
    in.v = Variable(Tensor::from(values, {1, kEach, 1}));
    in.rows = positions_from(communicator.rank() * kEach, (communicator.rank() + 1) * kEach);
    AttentionPlan plan;
    plan.skip = kSkip;
    const Variable out = ops::shared_attention(in, plan, {}, {group, bounds, 0, 0}, {bounds, {}});
    const double exact = 0.45 * kSkip / (1 + 0.45 * kSkip), largest = 1 / (kRanks * (1 + 0.45 * kSkip));
    for (std::int64_t r = 0; r < kEach; ++r) EXPECT_LE(std::abs(out.value().at(r) - exact), kSkip * largest) << r;
  });
}

}  // namespace
}  // namespace gau
