#include "train/inspector.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "framework/log.h"
#include "framework/random.h"

namespace gau {
namespace {

constexpr std::uint32_t kPairs = 16;  // pairs of a row whose angles are measured, of either kind

/// Angle in degrees between q of row `index` and k at j, under the rotation of their region.
double angle_of(const AttentionInputs& in, const AttentionPlan& plan, const AttentionRow& row, std::int64_t j) {
  const Region region = plan.region(row.position, j);
  const Tensor& q = region == Region::kNear ? in.q_near : region == Region::kLeft ? in.q_left : in.q_right;
  const Tensor& k = region == Region::kNear ? in.k_near : region == Region::kLeft ? in.k_left : in.k_right;
  const std::int64_t width = q.dim(2), length = k.dim(1);
  double dot = 0, qq = 0, kk = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    const double a = q.at(row.index * width + c), b = k.at((row.sequence * length + j) * width + c);
    dot += a * b;
    qq += a * a;
    kk += b * b;
  }
  const double size = std::sqrt(qq * kk);
  return std::acos(size > 0 ? std::clamp(dot / size, -1.0, 1.0) : 0.0) * 180 / std::numbers::pi;
}

std::uint8_t bin_of(double angle) {
  const auto bin = static_cast<std::size_t>(angle * static_cast<double>(kAngleBins) / 180);
  return static_cast<std::uint8_t>(std::min(bin, kAngleBins - 1));
}

/// Key of the first cumulative weight above `share`.
std::int64_t key_at_share(std::span<const double> weights, double share) {
  double sum = 0;
  std::size_t last = 0;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    if (weights[j] <= 0) continue;
    sum += weights[j];
    last = j;
    if (sum > share) break;
  }
  return static_cast<std::int64_t>(last);
}

/// Rows of a single sequence that are not filling.
std::int64_t measured_rows(const AttentionInputs& in) {
  if (!in.rows.defined()) return in.q_near.dim(1);
  const auto positions = in.rows.span<std::int32_t>();
  return std::count_if(positions.begin(), positions.end(), [](std::int32_t position) { return position >= 0; });
}

/// Sums of one layer over the sequences of a (method, length).
class LayerSums {
 public:
  void add(std::int64_t layer, std::uint64_t sequence, const AttentionInputs& in, const AttentionPlan& plan,
           std::uint64_t seed) {
    const auto rows = static_cast<std::size_t>(in.q_near.dim(1));
    const std::vector<RowFigures> figures = row_figures(in, plan);
    figures_.insert(figures_.end(), figures.begin(), figures.end());
    const std::size_t first = lambda_.size();
    lambda_.resize(first + rows, std::nan(""));
    random_.resize((first + rows) * kPairs, kNoBin);
    attended_.resize((first + rows) * kPairs, kNoBin);
    if (sequence == 0) start_map(in);
    const RandomKey key{seed, sequence, Site::kEvaluation, static_cast<std::uint32_t>(layer)};
    for_attention_rows(in, plan, [&](const AttentionRow& row) {
      const std::size_t at = first + static_cast<std::size_t>(row.index);
      lambda_[at] = row_lambda(row.weights);
      draw_pairs(in, plan, row, key, at);
    });
    if (sequence == 0) fill_map(in, plan);
  }

  void finish(LayerFigures& out) const {
    out.rows = static_cast<std::int64_t>(figures_.size());
    out.mean = mean_of(figures_);
    out.lambda = lambda_figures();
    out.random_angles = shares(random_);
    out.attended_angles = shares(attended_);
    out.heatmap = map_;
  }

 private:
  static constexpr std::uint8_t kNoBin = 255;

  void draw_pairs(const AttentionInputs& in, const AttentionPlan& plan, const AttentionRow& row, const RandomKey& key,
                  std::size_t at) {
    const auto length = static_cast<std::uint64_t>(row.weights.size());
    const auto position = static_cast<std::uint32_t>(row.position);
    for (std::uint32_t n = 0; n < kPairs; ++n) {
      // Few keys may be visible: a row draws until it meets one, within reason.
      for (std::uint32_t attempt = 0; attempt < 64; ++attempt) {
        const auto j = static_cast<std::int64_t>(key.below(length, position, n, attempt));
        if (!plan.visible(row.position, j)) continue;
        random_[at * kPairs + n] = bin_of(angle_of(in, plan, row, j));
        break;
      }
      const double share = (n + key.uniform(position, n, 64)) / kPairs;
      attended_[at * kPairs + n] = bin_of(angle_of(in, plan, row, key_at_share(row.weights, share)));
    }
  }

  void start_map(const AttentionInputs& in) {
    map_.rows = std::min(kHeatmapSide, measured_rows(in));
    map_.columns = std::min(kHeatmapSide, in.k_near.dim(1));
    map_.cells.assign(static_cast<std::size_t>(map_.rows * map_.columns), 0);
  }

  void fill_map(const AttentionInputs& in, const AttentionPlan& plan) {
    const std::int64_t rows = measured_rows(in), length = in.k_near.dim(1);
    // Cells of unequal size: each is a mean over what falls into it.
    std::vector<double> sums(map_.cells.size() * static_cast<std::size_t>((rows + map_.rows - 1) / map_.rows), 0);
    const auto part = static_cast<std::int64_t>(sums.size() / map_.cells.size());
    for_attention_rows(in, plan, [&](const AttentionRow& row) {
      const std::int64_t r = row.index * map_.rows / rows, within = row.index - (r * rows + map_.rows - 1) / map_.rows;
      double* cells = sums.data() + (r * part + within) * map_.columns;
      for (std::int64_t j = 0; j < length; ++j) cells[j * map_.columns / length] += row.weights[static_cast<std::size_t>(j)];
    });
    for (std::int64_t r = 0; r < map_.rows; ++r) {
      const std::int64_t in_cell = ((r + 1) * rows + map_.rows - 1) / map_.rows - (r * rows + map_.rows - 1) / map_.rows;
      for (std::int64_t c = 0; c < map_.columns; ++c) {
        const std::int64_t keys =
            ((c + 1) * length + map_.columns - 1) / map_.columns - (c * length + map_.columns - 1) / map_.columns;
        double sum = 0;
        for (std::int64_t n = 0; n < in_cell; ++n) sum += sums[static_cast<std::size_t>((r * part + n) * map_.columns + c)];
        map_.cells[static_cast<std::size_t>(r * map_.columns + c)] =
            static_cast<float>(sum * static_cast<double>(length) / static_cast<double>(in_cell * keys));
      }
    }
  }

  LambdaFigures lambda_figures() const {
    LambdaFigures out;
    std::vector<double> sorted;
    std::copy_if(lambda_.begin(), lambda_.end(), std::back_inserter(sorted), [](double value) { return !std::isnan(value); });
    std::sort(sorted.begin(), sorted.end());
    const auto finite = static_cast<std::size_t>(
        std::find_if(sorted.begin(), sorted.end(), [](double value) { return std::isinf(value); }) - sorted.begin());
    const double all = static_cast<double>(sorted.size());
    out.tied = 1 - static_cast<double>(finite) / all;
    out.mean = std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(finite), 0.0) /
               static_cast<double>(finite);
    for (std::size_t q = 0; q < kLambdaLevels.size(); ++q) {
      out.quantiles[q] = sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(kLambdaLevels[q] * all))];
    }
    return out;
  }

  static std::array<double, kAngleBins> shares(const std::vector<std::uint8_t>& bins) {
    std::array<double, kAngleBins> out{};
    double count = 0;
    for (const std::uint8_t bin : bins) {
      if (bin == kNoBin) continue;
      out[bin] += 1;
      count += 1;
    }
    for (double& share : out) share /= count;
    return out;
  }

  std::vector<RowFigures> figures_;
  std::vector<double> lambda_;
  std::vector<std::uint8_t> random_, attended_;
  Heatmap map_;
};

}  // namespace

Inspection inspect(const Model& model, const std::vector<TokenWindow>& windows, const InspectOptions& options) {
  const ModelConfig& config = model.config();
  Inspection result;
  result.train_length = config.attention.train_length;
  result.sequences = static_cast<std::int64_t>(windows.size());
  result.layers = config.layers;
  result.lengths = options.lengths;
  std::vector<Method> methods = options.methods;
  if (methods.empty()) methods.emplace_back();
  for (Method& method : methods) {
    method = resolve(method, config);
    result.methods.push_back(method.name);
  }
  for (const Method& method : methods) {
    for (const std::int64_t length : options.lengths) {
      std::vector<LayerSums> sums(static_cast<std::size_t>(config.layers));
      Planner planner(config, method, model.dtype());
      for (std::uint64_t s = 0; s < windows.size(); ++s) {
        ModelInputs inputs;
        inputs.ids = Tensor::from(middle(windows[s], length), {1, length});
        inputs.rows = spaced_rows(1, length, options.rows);
        model.visit_attention(inputs, planner, [&](std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan) {
          sums[static_cast<std::size_t>(layer)].add(layer, s, in, plan, options.seed);
        });
      }
      for (std::int64_t layer = 0; layer < config.layers; ++layer) {
        LayerFigures& figures = result.figures.emplace_back();
        figures.method = method.name;
        figures.length = length;
        figures.layer = layer;
        sums[static_cast<std::size_t>(layer)].finish(figures);
      }
      log::info("inspected {} at {}", method.name, length);
    }
  }
  return result;
}

}  // namespace gau
