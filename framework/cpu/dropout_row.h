// Dropout of a piece of a row: the draws that DropoutSpec documents, many at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "framework/random.h"

namespace gau::cpu {

/// Columns whose draws are made together.
constexpr std::int64_t kDropoutChunk = 128;

/// The 16-bit draws of columns [128 · chunk, 128 · (chunk + 1)) of a row.
void dropout_bits(std::uint64_t key, std::uint32_t stream, std::uint32_t sample, std::uint32_t row, std::int64_t chunk,
                  std::uint16_t* bits);

/// What one tensor's dropout needs, computed once a call.
class DropoutRows {
 public:
  explicit DropoutRows(const DropoutSpec& spec)
      : spec_(&spec),
        key_(spec.key.key()),
        stream_(spec.key.stream()),
        // The largest threshold keeps one draw in 65536, so that the divisor is never 0.
        threshold_(static_cast<std::uint16_t>(std::min(65535.0, spec.rate * 65536.0 + 0.5))),
        scale_(65536.0 / (65536.0 - threshold_)) {}

  /// values[c] becomes 0 or values[c] / (probability of being kept), for columns first_column … first_column + count - 1 of row
  /// `row` of global sample `sample`.
  template <class T>
  void apply(std::uint64_t sample, std::int64_t row, std::int64_t first_column, std::int64_t count, T* values) const {
    std::array<std::uint16_t, kDropoutChunk> bits;
    const auto scale = static_cast<T>(scale_);
    const std::uint16_t threshold = threshold_;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t column = first_column + done;
      const std::int64_t inside = column % kDropoutChunk;
      const std::int64_t width = std::min(kDropoutChunk - inside, count - done);
      dropout_bits(key_, stream_, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(row), column / kDropoutChunk,
                   bits.data());
      T* const to = values + done;
      const std::uint16_t* const draw = bits.data() + inside;
      for (std::int64_t i = 0; i < width; ++i) to[i] = draw[i] < threshold ? T(0) : to[i] * scale;
      done += width;
    }
  }

  /// The same for a whole row of a tensor, which spec.rows and spec.length place.
  template <class T>
  void apply_to_row(std::int64_t tensor_row, std::int64_t columns, T* values) const {
    const std::int64_t flat = spec_->rows.defined() ? spec_->rows.data<std::int32_t>()[tensor_row] : tensor_row;
    if (flat < 0) return;  // padding: nobody reads the row
    apply(spec_->first_sample + static_cast<std::uint64_t>(flat / spec_->length), flat % spec_->length, 0, columns, values);
  }

 private:
  const DropoutSpec* spec_;
  std::uint64_t key_;
  std::uint32_t stream_;
  std::uint16_t threshold_;
  double scale_;
};

/// One row, for callers that need few.
template <class T>
void dropout_row(const DropoutSpec& spec, std::uint64_t sample, std::int64_t row, std::int64_t first_column, std::int64_t count,
                 T* values) {
  DropoutRows(spec).apply(sample, row, first_column, count, values);
}

}  // namespace gau::cpu
