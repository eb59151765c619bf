// Ranks as threads: messages, collectives, and what happens when ranks disagree, fail or fall silent.
#include "framework/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>

#include "framework/error.h"
#include "framework/thread_ranks.h"
#include "tests/rank_errors.h"

namespace gau {
namespace {

constexpr MessageLabel kLabel{MessageKind::kGradient, 7, 3};

std::span<const std::byte> bytes_of(const std::vector<int>& values) { return std::as_bytes(std::span(values)); }
std::span<std::byte> bytes_of(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

TEST(Communicator, MessagesOfAKindArriveInOrderAndKindsDoNotMix) {
  run_as_threads(2, [](Communicator& ranks) {
    const int peer = 1 - ranks.rank();
    const std::vector<int> first{1, 2, 3}, second{4, 5}, other{6};
    std::vector<int> a(3), b(2), c(1);
    const MessageLabel sums{MessageKind::kSum, 7, 3};
    // The other kind is asked for first and sent last.
    const auto get_c = ranks.receive(peer, sums, bytes_of(c));
    const auto get_a = ranks.receive(peer, {MessageKind::kGradient, 7, 0}, bytes_of(a));
    const auto get_b = ranks.receive(peer, {MessageKind::kGradient, 7, 1}, bytes_of(b));
    const auto one = ranks.send(peer, {MessageKind::kGradient, 7, 0}, bytes_of(first));
    const auto two = ranks.send(peer, {MessageKind::kGradient, 7, 1}, bytes_of(second));
    const auto three = ranks.send(peer, sums, bytes_of(other));
    for (const auto* transfer : {&get_b, &get_a, &get_c, &one, &two, &three}) ranks.wait(**transfer);
    EXPECT_EQ(a, first);
    EXPECT_EQ(b, second);
    EXPECT_EQ(c, other);
  });
}

TEST(Communicator, CollectivesGiveEverybodyTheSame) {
  for (const int size : {1, 2, 3, 5}) {
    run_as_threads(size, [&](Communicator& ranks) {
      const std::vector<double> all = ranks.all_gather(kLabel, ranks.rank() * 1.5);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], r * 1.5);

      const std::vector<std::string> texts =
          ranks.all_gather_text(kLabel, std::string(static_cast<std::size_t>(ranks.rank()), 'x'));
      for (int r = 0; r < size; ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)].size(), static_cast<std::size_t>(r));

      const std::string mine = "from " + std::to_string(ranks.rank());
      EXPECT_EQ(ranks.broadcast_text(kLabel, size - 1, mine), "from " + std::to_string(size - 1));
    });
  }
}

TEST(Communicator, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  run_as_threads(4, [&](Communicator& ranks) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      ranks.barrier({MessageKind::kControl, round});
      EXPECT_GE(arrived.load(), 4 * round);
      ranks.barrier({MessageKind::kControl, round});
    }
  });
}

TEST(Communicator, RankThatLeavesOutAnExchangeIsFoundAtTheNextMessage) {
  const Error error = error_of(2, [](Communicator& ranks) {
    for (std::int64_t bucket = 0; bucket < 4; ++bucket) {
      if (ranks.rank() == 1 && bucket == 2) continue;
      ranks.all_gather(MessageLabel{MessageKind::kGradient, 7, bucket}, ranks.rank());
    }
  });
  EXPECT_EQ(error.code(), ExitCode::kPeerLost);
  EXPECT_THAT(error.what(), testing::HasSubstr("step 7, bucket 3, gradient"));
  EXPECT_THAT(error.what(), testing::HasSubstr("step 7, bucket 2, gradient"));
}

TEST(Communicator, SizesMustAgree) {
  const Error error = error_of(2, [](Communicator& ranks) {
    std::vector<int> mine(static_cast<std::size_t>(3 + ranks.rank()));
    std::vector<int> got(mine.size());
    const auto out = ranks.send(1 - ranks.rank(), kLabel, bytes_of(mine));
    const auto in = ranks.receive(1 - ranks.rank(), kLabel, bytes_of(got));
    ranks.wait(*in);
  });
  EXPECT_EQ(error.code(), ExitCode::kPeerLost);
  EXPECT_THAT(error.what(), testing::HasSubstr("bytes"));
}

TEST(Communicator, FailureOfOneRankReleasesTheOthers) {
  std::atomic<int> released{0};
  EXPECT_THROW(run_as_threads(4,
                              [&](Communicator& ranks) {
                                if (ranks.rank() == 2) throw std::runtime_error("broken on purpose");
                                try {
                                  ranks.barrier(kLabel);
                                } catch (const Error& error) {
                                  EXPECT_EQ(error.code(), ExitCode::kPeerLost);
                                  ++released;
                                  throw;
                                }
                              }),
               std::runtime_error);
  EXPECT_EQ(released.load(), 3);
}

TEST(CommunicatorDeathTest, SilentRankEndsTheProcessAndIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_nobody = [] {
    run_as_threads(2, [](Communicator& ranks) {
      ranks.set_timeout(0.2);
      int got = 0;
      if (ranks.rank() == 0) ranks.wait(*ranks.receive(1, kLabel, std::as_writable_bytes(std::span(&got, 1))));
      for (;;) std::this_thread::yield();
    });
  };
  EXPECT_EXIT(wait_for_nobody(), testing::ExitedWithCode(76), "rank 0.*waiting for rank 1.*step 7, bucket 3, gradient");
}

TEST(Communicator, WaitsThatEndInTimeAreLeftAlone) {
  run_as_threads(2, [](Communicator& ranks) {
    ranks.set_timeout(0.5);
    for (int round = 0; round < 12; ++round) {
      if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      ranks.barrier({MessageKind::kControl, round});
    }
  });
}

TEST(Communicator, OneRankNeedsNobody) {
  const auto one = single_rank();
  EXPECT_EQ(one->size(), 1);
  one->barrier(kLabel);
  EXPECT_EQ(one->all_gather(kLabel, 5), std::vector<int>{5});
  EXPECT_EQ(one->broadcast_text(kLabel, 0, "text"), "text");
}

TEST(Communicator, ALauncherIsSeen) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) unsetenv(name);
  EXPECT_EQ(launched_ranks(), 1);
  setenv("PMI_SIZE", "3", 1);
  EXPECT_EQ(launched_ranks(), 3);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_EQ(launched_ranks(), 4);
  if (std::string(communication_library()) == "none") {
    try {
      start_ranks();
      ADD_FAILURE() << "four processes without MPI";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
    }
  }
  unsetenv("PMI_SIZE");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(start_ranks()->size(), 1);
}

}  // namespace
}  // namespace gau
