// Sequences whose rows several ranks share, as threads: the bits of one rank, for every kind of plan, length and type; and
// gradients whose sum over ranks is that of one rank.
#include "layers/shared_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "autograd/variable.h"
#include "framework/error.h"
#include "framework/thread_ranks.h"
#include "layers/model.h"

namespace gau {
namespace {

struct SharedCase {
  std::string name, method;
  AttentionKind kind = AttentionKind::kDot;
  std::string position = "rope";  // of the model
  bool learn_scale = false;
  bool own_positions = false;  // of each sample
};

ModelConfig config_of(const SharedCase& c) {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 24;
  config.intermediate = 40;
  config.key_size = 16;
  config.vocab_size = 30;
  config.attention.kind = c.kind;
  config.attention.scale = 12;
  config.attention.position = c.position;
  config.attention.learn_scale = c.learn_scale;
  config.attention.train_length = 64;
  return config;
}

struct Masked {
  ModelInputs inputs;
  Tensor labels;
};

// A batch with padding behind the first sequence, holes in both, and about a seventh of the rows wanted.
Masked batch_of(std::int64_t batch, std::int64_t length, bool own_positions) {
  std::vector<std::int32_t> ids, types, valid, rows, labels;
  std::vector<double> positions;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      const auto n = static_cast<std::int32_t>(b * length + i);
      ids.push_back(1 + (n * n + 3 * n) % 29);
      types.push_back(n % 2);
      const bool token = i % 11 != 5 && (b > 0 || i < length - length / 4);
      valid.push_back(token);
      positions.push_back(static_cast<double>(i) * 1.5 + static_cast<double>(b));
      if (token && (n * 5) % 7 == 3) {
        rows.push_back(n);
        labels.push_back(n % 29);
      }
    }
  }
  while (rows.size() % 32 != 0) {
    rows.push_back(-1);
    labels.push_back(-1);
  }
  Masked masked;
  masked.inputs.ids = Tensor::from(ids, {batch, length});
  masked.inputs.types = Tensor::from(types, {batch, length});
  masked.inputs.key_mask = Tensor::from(valid, {batch, length});
  if (own_positions) masked.inputs.positions = Tensor::from(positions, {batch, length});
  masked.inputs.rows = Tensor::from(rows, {static_cast<std::int64_t>(rows.size())});
  masked.labels = Tensor::from(labels, {static_cast<std::int64_t>(labels.size())});
  return masked;
}

struct Outcome {
  Tensor row_loss, predicted, gradients;
  double sum = 0;
  std::int64_t correct = 0;
};

// Forward and backward with dropout; `ranks` = 1 goes without a group.
Outcome run(const SharedCase& c, DType dtype, int ranks, std::int64_t batch, std::int64_t length) {
  Outcome whole;
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator& communicator) {
    Model model(config_of(c), dtype);
    model.initialize(4);
    Planner planner(model.config(), parse_method(c.method), dtype);
    const Masked masked = batch_of(batch, length, c.own_positions);
    Context context;
    context.training = true;
    context.seed = 9;
    context.step = 3;
    context.first_sample = 2;
    if (ranks > 1) context.group = RankGroup::of(communicator, ranks);
    const MaskedLoss loss = model.masked_loss(context, masked.inputs, masked.labels, planner);
    model.parameters().zero_gradients();
    backward(loss.sum);
    const Tensor gradients = model.parameters().gradients().to(DType::kF64);
    const std::lock_guard lock(mutex);
    if (!whole.gradients.defined()) {
      whole = {loss.row_loss, loss.predicted, gradients.clone(), loss.sum.value().item(), loss.correct};
      return;
    }
    EXPECT_EQ(loss.sum.value().item(), whole.sum);
    EXPECT_EQ(std::memcmp(loss.row_loss.raw(), whole.row_loss.raw(), loss.row_loss.bytes()), 0);
    for (std::int64_t i = 0; i < gradients.size(); ++i) whole.gradients.data<double>()[i] += gradients.at(i);
  });
  return whole;
}

void expect_same(const SharedCase& c, DType dtype, int ranks, std::int64_t batch, std::int64_t length) {
  SCOPED_TRACE(fmt::format("{} ranks, {} x {}, {}", ranks, batch, length, name_of(dtype)));
  const Outcome one = run(c, dtype, 1, batch, length), many = run(c, dtype, ranks, batch, length);
  ASSERT_GT(one.sum, 0);
  EXPECT_EQ(many.sum, one.sum);
  EXPECT_EQ(many.correct, one.correct);
  EXPECT_EQ(std::memcmp(many.row_loss.raw(), one.row_loss.raw(), one.row_loss.bytes()), 0);
  EXPECT_EQ(std::memcmp(many.predicted.raw(), one.predicted.raw(), one.predicted.bytes()), 0);
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < one.gradients.size(); ++i) {
    most = std::max(most, std::abs(many.gradients.at(i) - one.gradients.at(i)));
    scale = std::max(scale, std::abs(one.gradients.at(i)));
  }
  EXPECT_LE(most, (dtype == DType::kF64 ? 1e-13 : 1e-6) * scale);
}

class SharedSequences : public testing::TestWithParam<SharedCase> {};

TEST_P(SharedSequences, HaveTheBitsOfOneRank) {
  // 300 is three blocks, the last one short: of four ranks one has no row. 700 gives two blocks of wanted rows.
  for (const int ranks : {2, 3, 4}) {
    expect_same(GetParam(), DType::kF32, ranks, 2, 300);
    expect_same(GetParam(), DType::kF64, ranks, 1, 300);
  }
}

INSTANTIATE_TEST_SUITE_P(method, SharedSequences,
                         testing::Values(SharedCase{"rope", "rope"}, SharedCase{"cosine", "rope", AttentionKind::kCosine},
                                         SharedCase{"keynorm", "rope", AttentionKind::kKeyNorm},
                                         SharedCase{"learned", "rope", AttentionKind::kCosine, "rope", true},
                                         SharedCase{"infoscale", "rope+infoscale"},
                                         SharedCase{"valid", "rope+logn:count=valid"}, SharedCase{"window", "window:w=40"},
                                         SharedCase{"sinks", "lm-infinite:window=48;sinks=3;rows=2"},
                                         SharedCase{"streaming", "streaming:window=32;sinks=4"},
                                         SharedCase{"rerope", "rerope:w=20"}, SharedCase{"leaky", "leaky-rerope:w=20;k=8"},
                                         SharedCase{"alibi", "alibi"}, SharedCase{"yarn", "yarn"},
                                         SharedCase{"hwfa", "hwfa:w=24", AttentionKind::kDot, "hwfa:w=24"},
                                         SharedCase{"hwfa2", "hwfa2:w=24", AttentionKind::kDot, "hwfa2:w=24"},
                                         SharedCase{"invariant", "rope+scale-invariant"},
                                         SharedCase{"own", "rope", AttentionKind::kDot, "rope", false, true}),
                         [](const auto& tested) { return tested.param.name; });

TEST(SharedRows, OtherLengthsAndBatches) {
  const SharedCase rope{"rope", "rope+infoscale"};
  for (const auto& [batch, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 20}, {2, 128}, {1, 129}, {1, 1100}, {2, 1000}}) {
    const std::int64_t least = length < 5 ? 5 : length;
    expect_same(rope, DType::kF32, 4, batch, least);
    expect_same(rope, DType::kF32, 3, batch, least);
  }
}

TEST(SharedRows, DealsOutWholeBlocks) {
  run_as_threads(4, [](Communicator& communicator) {
    const SharedRows rows(RankGroup::of(communicator, 4), 2, 600, 0);
    const std::vector<std::int64_t> bounds{0, 128, 256, 384, 600};
    EXPECT_EQ(rows.sequence(1).bounds, bounds);
    EXPECT_EQ(rows.positions().dim(1), communicator.rank() == 3 ? 216 : 128);
    EXPECT_EQ(rows.flat().at(rows.positions().dim(1)), 600 + 128 * communicator.rank());
    // A short sequence falls to one rank; the others' row stands for none.
    const SharedRows little(RankGroup::of(communicator, 4), 1, 100, 0);
    EXPECT_EQ(little.positions().at(0), communicator.rank() == 3 ? 0 : -1);
  });
}

TEST(SharedRows, GroupsOfNeighbours) {
  run_as_threads(4, [](Communicator& communicator) {
    const RankGroup group = RankGroup::of(communicator, 2);
    EXPECT_EQ(group.first, communicator.rank() / 2 * 2);
    EXPECT_EQ(group.index(), communicator.rank() % 2);
    EXPECT_THROW(RankGroup::of(communicator, 3), Error);
  });
}

}  // namespace
}  // namespace gau
