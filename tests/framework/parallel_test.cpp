// Blocks of parallel loops: fixed, each done once, with errors carried to the caller.
#include "framework/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::Threads;
using Blocks = std::set<std::pair<std::int64_t, std::int64_t>>;

Blocks blocks_of(std::int64_t n, std::int64_t grain) {
  Blocks blocks;
  std::mutex mutex;
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(blocks.insert({begin, end}).second) << "block " << begin << " ran twice";
  });
  return blocks;
}

TEST(ParallelFor, BlocksDependOnSizeAndGrainAlone) {
  for (const int count : {1, 2, 4, 7}) {
    const Threads scope(count);
    EXPECT_EQ(blocks_of(10, 4), (Blocks{{0, 4}, {4, 8}, {8, 10}}));
    EXPECT_EQ(blocks_of(3, 100), (Blocks{{0, 3}}));
    EXPECT_EQ(blocks_of(2, 0), (Blocks{{0, 1}, {1, 2}}));
    EXPECT_TRUE(blocks_of(0, 4).empty());
  }
}

TEST(ParallelFor, EveryItemOnceInManyLoops) {
  const Threads scope(4);
  for (int loop = 0; loop < 2000; ++loop) {
    std::vector<std::atomic<int>> hits(37);
    parallel_for(37, 1, [&](std::int64_t begin, std::int64_t) { ++hits[static_cast<std::size_t>(begin)]; });
    for (const auto& hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(ParallelFor, UsesOtherThreads) {
  const Threads scope(3);
  std::set<std::thread::id> ids;
  std::mutex mutex;
  std::atomic<int> arrived{0};
  parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
    EXPECT_TRUE(in_parallel());
  });
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_FALSE(in_parallel());
}

TEST(ParallelFor, NestedLoopsAreSerialAndComplete) {
  const Threads scope(4);
  std::atomic<int> total{0};
  parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
    const auto self = std::this_thread::get_id();
    parallel_for(5, 1, [&](std::int64_t, std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++total;
    });
  });
  EXPECT_EQ(total, 40);
}

TEST(ParallelFor, LoopsOfSeveralThreadsAtOnce) {
  const Threads scope(2);
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 200; ++loop) parallel_for(10, 1, [&](std::int64_t, std::int64_t) { ++total; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 6000);
}

TEST(ParallelFor, CarriesErrorsAndGoesOn) {
  for (const int count : {1, 4}) {
    const Threads scope(count);
    EXPECT_THROW(parallel_for(20, 1,
                              [](std::int64_t begin, std::int64_t) {
                                if (begin == 13) fail(ExitCode::kData, "block 13");
                              }),
                 Error);
    EXPECT_FALSE(in_parallel());
    EXPECT_EQ(blocks_of(5, 1).size(), 5U);
  }
}

// Long enough for a poll to be due.
void take_time() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(PollScope, CallsBetweenBlocksAndOnItsOwnThread) {
  for (const int count : {1, 3}) {
    const Threads scope(count);
    const auto self = std::this_thread::get_id();
    std::atomic<int> blocks{0};
    int polls = 0, seen = 0;
    {
      const PollScope poll([&] {
        ++polls;
        seen = blocks;
        EXPECT_EQ(std::this_thread::get_id(), self);
      });
      parallel_for(12, 1, [&](std::int64_t, std::int64_t) {
        take_time();
        ++blocks;
      });
      EXPECT_GE(polls, 1);
      EXPECT_LE(polls, 12);
      EXPECT_GE(seen, 1);
    }
    const int before = polls;
    parallel_for(3, 1, [](std::int64_t, std::int64_t) { take_time(); });
    EXPECT_EQ(polls, before) << "no poll without a scope";
  }
}

TEST(PollScope, OtherThreadsLoopsDoNotPoll) {
  const Threads scope(1);
  int polls = 0;
  const PollScope poll([&] { ++polls; });
  std::thread([] { parallel_for(3, 1, [](std::int64_t, std::int64_t) { take_time(); }); }).join();
  EXPECT_EQ(polls, 0);
}

TEST(PollScope, LoopsInsideAPollDoNotPoll) {
  for (const int count : {1, 3}) {
    const Threads scope(count);
    int depth = 0, polls = 0;
    const PollScope poll([&] {
      EXPECT_EQ(++depth, 1);
      ++polls;
      parallel_for(3, 1, [](std::int64_t, std::int64_t) { take_time(); });
      --depth;
    });
    parallel_for(6, 1, [](std::int64_t, std::int64_t) { take_time(); });
    EXPECT_GE(polls, 1);
  }
}

TEST(PollScope, InnerScopesCallTheOuterOnesToo) {
  int outer = 0, inner = 0;
  const auto loop = [] {
    parallel_for(20, 1, [](std::int64_t, std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  };
  const PollScope poll([&] { ++outer; });
  {
    const PollScope both([&] { ++inner; });
    loop();
  }
  EXPECT_GT(inner, 0);
  EXPECT_EQ(outer, inner);
  loop();
  EXPECT_GT(outer, inner);
}

TEST(PollScope, ErrorsPassThrough) {
  for (const int count : {1, 3}) {
    const Threads scope(count);
    {
      const PollScope poll([] { fail(ExitCode::kPeerLost, "a rank is gone"); });
      EXPECT_THROW(parallel_for(6, 1, [](std::int64_t, std::int64_t) { take_time(); }), Error);
    }
    EXPECT_FALSE(in_parallel());
    EXPECT_EQ(blocks_of(5, 1).size(), 5U);
  }
}

TEST(PollScope, ChangesNoBitOfALargeProduct) {
  const Tensor a = test::random_tensor<float>({1536, 1024}, 1), b = test::random_tensor<float>({1024, 1024}, 2);
  for (const int count : {1, 3}) {
    const Threads scope(count);
    const Tensor alone = Tensor::empty({1536, 1024}, DType::kF32), polled = Tensor::empty({1536, 1024}, DType::kF32);
    kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(alone));
    int polls = 0;
    const Tensor noise = Tensor::empty({4096}, DType::kF32);
    {
      const PollScope poll([&] {
        ++polls;
        kernels::fill(noise, polls);
        kernels::add(noise, noise, noise);
      });
      kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(polled));
    }
    EXPECT_GE(polls, 1) << "3 GFLOP take longer than a poll's pause";
    EXPECT_TRUE(test::same_bits(alone, polled));
  }
}

TEST(Threads, AreChecked) {
  EXPECT_THROW(set_threads(0), Error);
  EXPECT_GE(available_processors(), 1);
  EXPECT_GE(threads(), 1);
}

}  // namespace
}  // namespace gau
