// Loops over fixed blocks, shared by a pool of threads.
//
// parallel_for(n, grain, body) calls body(begin, end) for [0, grain), [grain, 2 grain), … The blocks depend on n and grain
// alone, never on the number of threads, so a body that reduces inside its block, and a caller that combines the blocks in
// order, give the same bits on any machine. A pool of our own rather than OpenMP: libgomp's waiting threads take the
// processor from whoever else runs on it (two threads were up to eight times slower than one beside another process) unless
// a variable is set before the program starts; threads here spin for microseconds, then sleep. It also lets the
// thread sanitizer see what happens.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace gau {

/// How many threads loops may use. Default: OMP_NUM_THREADS when it is set to a number, else the processors that this process
/// may run on. Throws Error(kUsage) below 1. Call it outside of loops.
void set_threads(int threads);
int threads();
/// The processors that this process may run on (its affinity mask).
int available_processors();
/// True inside the body of a parallel_for that is shared by threads.
bool in_parallel();

/// While one lives, the thread that made it calls `poll` between blocks of its loops: about every millisecond, or less often
/// where `poll` itself takes long, so that it never takes more than a tenth of the time. For what does not advance by itself
/// and may be called from one thread only, as messages. Blocks stay the same, so no bit depends on it. What `poll` throws, the
/// loop throws. Loops inside `poll` do not call it again. While a scope lives inside another one, both polls are called.
class PollScope {
 public:
  explicit PollScope(std::function<void()> poll);
  ~PollScope();
  PollScope(const PollScope&) = delete;
  PollScope& operator=(const PollScope&) = delete;

  /// For loops: calls `poll` of this thread's scope when its time has come.
  static void call_if_due();

 private:
  using Clock = std::chrono::steady_clock;
  void call();
  void poll_all() const;

  PollScope* outer_;
  std::function<void()> poll_;
  Clock::time_point due_;
  bool polling_ = false;
};

namespace detail {
using BlockFunction = void (*)(const void* body, std::int64_t block);
void run_blocks(std::int64_t blocks, BlockFunction function, const void* body);
}  // namespace detail

/// body(begin, end) for every block of `grain` items of [0, n), in any order and on any thread; serial, in order, when there
/// is a single block, a single thread, or a loop of this process already runs. The first exception is thrown on to the caller.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const auto run = [&](std::int64_t block) { body(block * grain, std::min(n, (block + 1) * grain)); };
  using Run = decltype(run);
  const auto call = [](const void* object, std::int64_t block) {
    (*static_cast<std::add_pointer_t<std::add_const_t<std::remove_reference_t<Run>>>>(object))(block);
  };
  detail::run_blocks((n + grain - 1) / grain, call, std::addressof(run));
}

}  // namespace gau
