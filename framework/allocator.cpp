// Cache of freed blocks by size class.
//
// Requests are rounded up to a class (eight classes between two powers of two, so at most an eighth is lost), and a freed block
// serves the next request of its class. When a class has nothing left, cached blocks of other classes are given back before
// the system is asked, as far as the total would go above the largest need so far and a quarter: lengths that vary then do
// not pile up memory, while a loop of equal steps never asks the system again.
#include "framework/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "framework/error.h"

namespace gau::allocator {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSlack = std::size_t{64} << 20;

struct Cache {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> free_blocks;
  std::size_t cached = 0;
  std::size_t in_use = 0;
  std::size_t peak = 0;       // since reset_peak()
  std::size_t high_mark = 0;  // ever
  std::size_t system_allocations = 0;
};

// Never destroyed: tensors of static storage may be released after it would be.
Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

std::size_t size_class(std::size_t bytes) {
  const std::size_t wanted = std::max(bytes, kAlignment);
  const std::size_t step = std::max(std::bit_floor(wanted) / 8, kAlignment);
  return (wanted + step - 1) / step * step;
}

void* system_allocate(std::size_t bytes) {
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const block = std::aligned_alloc(alignment, rounded);
  // A quarter of the page faults' cost remains with huge pages; where the system has none, nothing changes.
  if (block != nullptr && alignment == kHugePage) madvise(block, rounded, MADV_HUGEPAGE);
  return block;
}

// Largest blocks first, so that few are given up. The caller holds the lock.
void shrink(Cache& all, std::size_t allowed) {
  while (all.cached > allowed && !all.free_blocks.empty()) {
    const auto last = std::prev(all.free_blocks.end());
    std::free(last->second.back());
    last->second.pop_back();
    all.cached -= last->first;
    if (last->second.empty()) all.free_blocks.erase(last);
  }
}

void* take(Cache& all, std::size_t bytes) {
  const auto found = all.free_blocks.find(bytes);
  if (found == all.free_blocks.end()) return nullptr;
  void* const block = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) all.free_blocks.erase(found);
  all.cached -= bytes;
  return block;
}

void* fetch(Cache& all, std::size_t bytes) {
  const std::size_t limit = all.high_mark + all.high_mark / 4 + kSlack;
  shrink(all, limit > all.in_use + bytes ? limit - all.in_use - bytes : 0);
  void* block = system_allocate(bytes);
  if (block == nullptr) {
    shrink(all, 0);
    block = system_allocate(bytes);
  }
  if (block != nullptr) ++all.system_allocations;
  return block;
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t rounded = size_class(bytes);
  Cache& all = cache();
  void* block = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    block = take(all, rounded);
    if (block == nullptr) block = fetch(all, rounded);
    if (block != nullptr) {
      all.in_use += rounded;
      all.peak = std::max(all.peak, all.in_use);
      all.high_mark = std::max(all.high_mark, all.in_use);
    }
  }
  check(block != nullptr, ExitCode::kIo, "out of memory: {} bytes wanted beside {} in use; use a smaller batch or length",
        bytes, in_use());
#ifdef GAU_POISON
  std::memset(block, 0xFF, rounded);  // all ones is a NaN in every floating type
#endif
  return block;
}

void release(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  const std::size_t rounded = size_class(bytes);
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  all.in_use -= rounded;
  try {
    all.free_blocks[rounded].push_back(pointer);
    all.cached += rounded;
  } catch (const std::bad_alloc&) {
    std::free(pointer);
  }
}

std::size_t in_use() {
  const std::lock_guard lock(cache().mutex);
  return cache().in_use;
}

std::size_t peak() {
  const std::lock_guard lock(cache().mutex);
  return cache().peak;
}

void reset_peak() {
  const std::lock_guard lock(cache().mutex);
  cache().peak = cache().in_use;
}

std::size_t system_allocations() {
  const std::lock_guard lock(cache().mutex);
  return cache().system_allocations;
}

void trim() {
  const std::lock_guard lock(cache().mutex);
  shrink(cache(), 0);
}

}  // namespace gau::allocator
