// How much of attention was skipped, counted over the process: for reports and benchmarks.
#pragma once

#include <cstdint>

namespace gau {

struct AttentionCounters {
  std::int64_t pairs = 0;  ///< query-key pairs inside the visited ranges, in strips of eight queries
  std::int64_t kept = 0;   ///< of them, those whose value products were computed

  double skipped_share() const { return pairs ? 1 - static_cast<double>(kept) / static_cast<double>(pairs) : 0; }
};

AttentionCounters attention_counters();
void reset_attention_counters();
void count_attention(std::int64_t pairs, std::int64_t kept);

}  // namespace gau
