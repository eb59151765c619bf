// What a model's attention looks like on text: figures for each method, length and layer.
//
// Sequences are run one at a time and each layer is looked at while it runs, so that no more than a block of rows of attention
// is ever held. Rows are sampled evenly (options.rows of a sequence), which keeps the cost linear in the length but for the
// forward pass itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/method.h"
#include "layers/model.h"
#include "train/attention_stats.h"
#include "train/text_windows.h"

namespace gau {

struct InspectOptions {
  std::vector<std::int64_t> lengths;  ///< ascending; windows are as long as the longest
  std::vector<Method> methods;        ///< empty: the model's own
  std::int64_t rows = 512;            ///< rows of a sequence that are measured
  std::uint64_t seed = 0;             ///< of the pairs whose angles are measured
};

/// Bins of 5 degrees from 0 to 180.
inline constexpr std::size_t kAngleBins = 36;
inline constexpr std::array<double, 5> kLambdaLevels{0.1, 0.25, 0.5, 0.75, 0.9};
/// Largest side of a heat map.
inline constexpr std::int64_t kHeatmapSide = 512;

/// Λ over rows; see row_lambda().
struct LambdaFigures {
  double mean = 0;                    ///< over rows whose Λ is finite; NaN when there are none
  double tied = 0;                    ///< share of the rows whose Λ is infinite, the largest logit being shared
  std::array<double, 5> quantiles{};  ///< at kLambdaLevels, over all rows; infinity counts as the largest
};

/// Mean weights of a sequence's measured rows, by cells: row r of the map is the r-th part of the rows, column c of the keys.
struct Heatmap {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> cells;  ///< mean weight × length: 1 is what uniform attention would give
};

/// One method at one length in one layer.
struct LayerFigures {
  std::string method;
  std::int64_t length = 0;
  std::int64_t layer = 0;
  std::int64_t rows = 0;  ///< measured, of all sequences
  RowFigures mean;
  LambdaFigures lambda;
  /// Angles between q and k, as the logits see them (rotated), by share: of random pairs that see each other, and of pairs
  /// drawn by their weight.
  std::array<double, kAngleBins> random_angles{};
  std::array<double, kAngleBins> attended_angles{};
  Heatmap heatmap;  ///< of the first sequence
};

struct Inspection {
  std::string model;   ///< label
  std::string source;  ///< where the text is from
  std::int64_t train_length = 0;
  std::int64_t sequences = 0;
  std::int64_t layers = 0;
  std::vector<std::int64_t> lengths;
  std::vector<std::string> methods;
  std::vector<LayerFigures> figures;  ///< by method, then length, then layer

  const LayerFigures& at(std::size_t method, std::size_t length, std::size_t layer) const {
    return figures[(method * lengths.size() + length) * static_cast<std::size_t>(layers) + layer];
  }
};

/// Shorter lengths are measured on the middles of the windows. Throws Error(kUsage) for methods that the model cannot take.
Inspection inspect(const Model& model, const std::vector<TokenWindow>& windows, const InspectOptions& options);

}  // namespace gau
