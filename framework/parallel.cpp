// The pool behind parallel_for: blocks are claimed from a counter, the caller works along, and is done when every block is.
//
// A job outlives its call (shared pointer): a thread that wakes late finds no block left and never touches the caller's body.
#include "framework/parallel.h"

#include <sched.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "framework/error.h"

namespace gau {
namespace {

// Polls before a thread goes to sleep: some tens of microseconds, the pause between two kernels of a step.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` is not `old`, first awake, then asleep.
template <class T>
void wait_while_equal(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

thread_local bool inside_loop = false;

struct InsideLoop {
  InsideLoop() { inside_loop = true; }
  ~InsideLoop() { inside_loop = false; }
};

// Pause between two calls of a PollScope, and its least length in times of a call.
constexpr std::chrono::milliseconds kPollPause(1);
constexpr int kPollShare = 9;

thread_local PollScope* poll_scope = nullptr;

struct Job {
  std::int64_t blocks = 0;
  detail::BlockFunction function = nullptr;
  const void* body = nullptr;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> left{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work() {
    for (std::int64_t block = next++; block < blocks; block = next++) {
      try {
        function(body, block);
        PollScope::call_if_due();
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_all();
    }
  }

  void wait() {
    for (std::int64_t now = left.load(std::memory_order_acquire); now != 0; now = left.load(std::memory_order_acquire)) {
      wait_while_equal(left, now);
    }
  }
};

class Pool {
 public:
  void run(const std::shared_ptr<Job>& job, int threads) {
    {
      const std::lock_guard lock(mutex_);
      while (workers_ < threads - 1) start_worker();
      job_ = job;
      participants_ = threads - 1;
    }
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    job->work();
    job->wait();
  }

  std::mutex busy;  // held by the loop that has the pool

 private:
  void start_worker() {
    // Detached: workers sleep until the process ends. Their signals belong to the main thread.
    const int index = workers_++;
    std::thread([this, index, seen = generation_.load()] { serve(index, seen); }).detach();
  }

  void serve(int index, std::uint32_t seen) {
    inside_loop = true;
    for (;;) {
      wait_while_equal(generation_, seen);
      std::shared_ptr<Job> job;
      {
        const std::lock_guard lock(mutex_);
        seen = generation_.load(std::memory_order_acquire);
        if (index < participants_) job = job_;
      }
      if (job) job->work();
    }
  }

  std::mutex mutex_;
  std::shared_ptr<Job> job_;
  int participants_ = 0;
  int workers_ = 0;
  std::atomic<std::uint32_t> generation_{0};
};

// Never destroyed, since its threads are never joined.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

int default_threads() {
  if (const char* const text = std::getenv("OMP_NUM_THREADS")) {
    const std::string_view view(text);
    int value = 0;
    const auto result = std::from_chars(view.data(), view.data() + view.size(), value);
    if (result.ec == std::errc() && result.ptr == view.data() + view.size() && value >= 1) return value;
  }
  return available_processors();
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{default_threads()};
  return count;
}

void run_serial(std::int64_t blocks, detail::BlockFunction function, const void* body) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    function(body, block);
    PollScope::call_if_due();
  }
}

}  // namespace

void set_threads(int threads) {
  check(threads >= 1, ExitCode::kUsage, "{} threads; at least 1 is needed", threads);
  thread_count() = threads;
}

int threads() { return thread_count(); }

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

bool in_parallel() { return inside_loop; }

PollScope::PollScope(std::function<void()> poll)
    : outer_(std::exchange(poll_scope, this)), poll_(std::move(poll)), due_(Clock::now() + kPollPause) {}

PollScope::~PollScope() { poll_scope = outer_; }

void PollScope::call_if_due() {
  if (poll_scope != nullptr && !poll_scope->polling_) poll_scope->call();
}

void PollScope::poll_all() const {
  if (outer_ != nullptr) outer_->poll_all();
  poll_();
}

void PollScope::call() {
  const Clock::time_point begin = Clock::now();
  if (begin < due_) return;
  polling_ = true;
  try {
    poll_all();
  } catch (...) {
    polling_ = false;
    throw;
  }
  polling_ = false;
  const Clock::time_point end = Clock::now();
  due_ = end + std::max<Clock::duration>(kPollPause, kPollShare * (end - begin));
}

namespace detail {

void run_blocks(std::int64_t blocks, BlockFunction function, const void* body) {
  const int count = static_cast<int>(std::min<std::int64_t>(threads(), blocks));
  if (count <= 1 || inside_loop) return run_serial(blocks, function, body);
  const std::unique_lock busy(pool().busy, std::try_to_lock);
  if (!busy.owns_lock()) return run_serial(blocks, function, body);

  const auto job = std::make_shared<Job>();
  job->blocks = blocks;
  job->function = function;
  job->body = body;
  job->left = blocks;
  {
    const InsideLoop scope;
    pool().run(job, count);
  }
  if (job->error) std::rethrow_exception(job->error);
}

}  // namespace detail
}  // namespace gau
