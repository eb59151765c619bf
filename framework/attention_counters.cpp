#include "framework/attention_counters.h"

#include <atomic>

namespace gau {

namespace {
std::atomic<std::int64_t> all_pairs{0};
std::atomic<std::int64_t> kept_pairs{0};
}  // namespace

AttentionCounters attention_counters() { return {all_pairs, kept_pairs}; }

void reset_attention_counters() {
  all_pairs = 0;
  kept_pairs = 0;
}

void count_attention(std::int64_t pairs, std::int64_t kept) {
  all_pairs += pairs;
  kept_pairs += kept;
}

}  // namespace gau
