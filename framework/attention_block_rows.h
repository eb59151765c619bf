// The query rows that attention works on at a time. Where ranks share a sequence they cut it between such blocks, so that each
// block is the one that a single rank would have made.
#pragma once

#include <cstdint>

namespace gau {

/// Rows of a block: enough for the products to run at full speed.
inline constexpr std::int64_t kAttentionBlockRows = 128;

}  // namespace gau
