// Shared sequences whose keys travel in a ring: what one rank computes, up to rounding, for every kind of plan and length.
#include <gtest/gtest.h>

#include "framework/error.h"
#include "tests/layers/shared_cases.h"

namespace gau {
namespace {

using test::difference;
using test::Outcome;
using test::run;
using test::SharedCase;

void expect_close(const SharedCase& c, DType dtype, int ranks, std::int64_t batch, std::int64_t length) {
  SCOPED_TRACE(fmt::format("{} ranks, {} x {}, {}", ranks, batch, length, name_of(dtype)));
  const double tolerance = dtype == DType::kF64 ? 1e-12 : 2e-6;
  const Outcome one = run(c, dtype, 1, batch, length), many = run(c, dtype, ranks, batch, length, SequenceExchange::kRing);
  ASSERT_GT(one.sum, 0);
  EXPECT_NEAR(many.sum, one.sum, tolerance * one.sum);
  EXPECT_LE(difference(many.row_loss, one.row_loss), tolerance);
  EXPECT_LE(difference(many.gradients, one.gradients), tolerance);
}

class RingSequences : public testing::TestWithParam<SharedCase> {};

TEST_P(RingSequences, AreThoseOfOneRank) {
  for (const int ranks : {2, 3, 4}) {
    expect_close(GetParam(), DType::kF32, ranks, 2, 300);
    expect_close(GetParam(), DType::kF64, ranks, 1, 300);
  }
  expect_close(GetParam(), DType::kF64, 3, 2, 700);
}

INSTANTIATE_TEST_SUITE_P(method, RingSequences, testing::ValuesIn(test::shared_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(Ring, OtherLengthsAndBatches) {
  const SharedCase rope{"rope", "rope+infoscale"};
  for (const auto& [batch, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 5}, {3, 20}, {2, 128}, {1, 129}, {1, 1100}, {2, 1000}}) {
    expect_close(rope, DType::kF32, 4, batch, length);
    expect_close(rope, DType::kF64, 3, batch, length);
  }
}

TEST(Ring, SameBitsInEveryRun) {
  const SharedCase window{"window", "window:w=40"};
  const Outcome first = run(window, DType::kF32, 3, 2, 500, SequenceExchange::kRing);
  const Outcome second = run(window, DType::kF32, 3, 2, 500, SequenceExchange::kRing);
  EXPECT_EQ(second.sum, first.sum);
  EXPECT_TRUE(std::equal(first.row_loss.span<double>().begin(), first.row_loss.span<double>().end(),
                         second.row_loss.span<double>().begin()));
  // Gradients are added here in the order in which the threads come.
  EXPECT_LE(difference(second.gradients, first.gradients), 1e-14);
}

}  // namespace
}  // namespace gau
