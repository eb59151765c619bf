// Sequences whose rows several ranks share, as threads: the bits of one rank, for every kind of plan, length and type; and
// gradients whose sum over ranks is that of one rank.
#include "layers/shared_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "framework/error.h"
#include "tests/layers/shared_cases.h"

namespace gau {
namespace {

using test::difference;
using test::Outcome;
using test::run;
using test::SharedCase;

void expect_same(const SharedCase& c, DType dtype, int ranks, std::int64_t batch, std::int64_t length) {
  SCOPED_TRACE(fmt::format("{} ranks, {} x {}, {}", ranks, batch, length, name_of(dtype)));
  const Outcome one = run(c, dtype, 1, batch, length), many = run(c, dtype, ranks, batch, length);
  ASSERT_GT(one.sum, 0);
  EXPECT_EQ(many.sum, one.sum);
  EXPECT_EQ(many.correct, one.correct);
  EXPECT_EQ(std::memcmp(many.row_loss.raw(), one.row_loss.raw(), one.row_loss.bytes()), 0);
  EXPECT_EQ(std::memcmp(many.predicted.raw(), one.predicted.raw(), one.predicted.bytes()), 0);
  EXPECT_LE(difference(many.gradients, one.gradients), dtype == DType::kF64 ? 1e-13 : 1e-6);
}

class SharedSequences : public testing::TestWithParam<SharedCase> {};

TEST_P(SharedSequences, HaveTheBitsOfOneRank) {
  // 300 is three blocks, the last one short: of four ranks one has no row. 700 gives two blocks of wanted rows.
  for (const int ranks : {2, 3, 4}) {
    expect_same(GetParam(), DType::kF32, ranks, 2, 300);
    expect_same(GetParam(), DType::kF64, ranks, 1, 300);
  }
}

INSTANTIATE_TEST_SUITE_P(method, SharedSequences, testing::ValuesIn(test::shared_cases()),
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
