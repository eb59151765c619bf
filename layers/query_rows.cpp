#include "layers/query_rows.h"

#include <algorithm>

#include "framework/error.h"

namespace gau {

QueryRows group_rows(const Tensor& flat, std::int64_t batch, std::int64_t length) {
  QueryRows rows;
  rows.flat = flat;
  if (!flat.defined()) return rows;
  const auto wanted = flat.span<std::int32_t>();
  std::vector<std::int64_t> count(static_cast<std::size_t>(batch), 0);
  std::int64_t before = -1;
  for (const std::int32_t row : wanted) {
    if (row < 0) continue;
    check(row > before && row < batch * length, ExitCode::kData, "model: rows must ascend within [0, {}), but {} follows {}",
          batch * length, row, before);
    before = row;
    ++count[static_cast<std::size_t>(row / length)];
  }
  const std::int64_t most = *std::max_element(count.begin(), count.end());
  const std::int64_t width = std::min(length, std::max<std::int64_t>(8, (most + 7) / 8 * 8));
  rows.grouped = Tensor::empty({batch * width}, DType::kI32);
  rows.positions = Tensor::empty({batch, width}, DType::kI32);
  rows.ungroup = Tensor::empty({flat.size()}, DType::kI32);
  std::int32_t* grouped = rows.grouped.data<std::int32_t>();
  std::int32_t* positions = rows.positions.data<std::int32_t>();
  std::int32_t* ungroup = rows.ungroup.data<std::int32_t>();
  std::fill(grouped, grouped + batch * width, -1);
  std::fill(positions, positions + batch * width, -1);
  std::fill(count.begin(), count.end(), 0);
  for (std::size_t m = 0; m < wanted.size(); ++m) {
    ungroup[m] = -1;
    if (wanted[m] < 0) continue;
    const std::int64_t b = wanted[m] / length;
    const std::int64_t at = b * width + count[static_cast<std::size_t>(b)]++;
    grouped[at] = wanted[m];
    positions[at] = static_cast<std::int32_t>(wanted[m] % length);
    ungroup[m] = static_cast<std::int32_t>(at);
  }
  return rows;
}

}  // namespace gau
