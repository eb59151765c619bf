#include "train/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/log.h"
#include "layers/attention_geometry.h"
#include "train/attention_stats.h"
#include "train/text_windows.h"

namespace gau {
namespace {

constexpr double kLargestFactor = 64;
constexpr double kTolerance = 1e-3;  // nats
constexpr int kMostSteps = 40;

double entropy_of(const AttentionInputs& in, const AttentionPlan& plan) { return mean_of(row_figures(in, plan)).entropy; }

/// The inputs with their logits (bias aside) multiplied.
AttentionInputs scaled(const AttentionInputs& in, double factor) {
  AttentionInputs out = in;
  for (Tensor* q : {&out.q_near, &out.q_left, &out.q_right}) {
    if (!q->defined()) continue;
    Tensor copy = Tensor::empty(q->shape(), q->dtype());
    kernels::scale(*q, factor, copy);
    *q = copy;
  }
  return out;
}

/// One length of a model.
class Fitter {
 public:
  Fitter(const Model& model, const CalibrateOptions& options, std::int64_t length)
      : model_(model), options_(options), length_(length), config_(model.config()) {
    entry_ = {length, std::vector<double>(static_cast<std::size_t>(config_.layers), 1.0)};
    entry_is_used();
  }

  ModelInputs inputs(std::span<const EvalDocument> documents, const std::string& where) const {
    const auto windows = spaced_windows(documents, length_, std::max<std::int64_t>(1, options_.tokens / length_), where);
    std::vector<std::int32_t> ids;
    for (const TokenWindow& window : windows) ids.insert(ids.end(), window.begin(), window.end());
    ModelInputs inputs;
    const auto batch = static_cast<std::int64_t>(windows.size());
    inputs.ids = Tensor::from(ids, {batch, length_});
    inputs.rows = spaced_rows(batch, length_, options_.rows);
    return inputs;
  }

  std::vector<double> entropies(const ModelInputs& inputs) const {
    std::vector<double> result;
    Planner planner = this->planner();
    model_.visit_attention(inputs, planner, [&](std::int64_t, const AttentionInputs& in, const AttentionPlan& plan) {
      result.push_back(entropy_of(in, plan));
    });
    return result;
  }

  CalibrationReport fit(const ModelInputs& inputs, const std::vector<double>& target) {
    CalibrationReport report{{}, target, {}, {}};
    Planner planner = this->planner();
    model_.visit_attention(inputs, planner, [&](std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan) {
      const auto at = static_cast<std::size_t>(layer);
      report.before.push_back(entropy_of(in, plan));
      report.after.push_back(report.before.back());
      if (is_windowed_layer(config_, planner.method(), layer)) return;
      entry_.factors[at] = bisect(layer, in, plan, target[at], report.after[at]);
      // The layer runs with its factor from here on: later layers see what it makes of them.
      entry_is_used();
      planner = this->planner();
    });
    report.fitted = entry_;
    return report;
  }

 private:
  Planner planner() const {
    Method method = parse_method(options_.position.empty() ? "calibrated" : options_.position + "+calibrated");
    return {config_, method, model_.dtype()};
  }
  void entry_is_used() { config_.attention.calibration = {entry_}; }

  double bisect(std::int64_t layer, const AttentionInputs& in, const AttentionPlan& plan, double target,
                double& entropy) const {
    AttentionPlan unbounded = plan;
    unbounded.logit_bound = std::numeric_limits<double>::infinity();
    double low = -std::log(kLargestFactor), high = -low, middle = 0;  // ln of the factor
    for (int step = 0; step < kMostSteps && std::abs(entropy - target) > kTolerance; ++step) {
      (entropy > target ? low : high) = middle;
      middle = (low + high) / 2;
      entropy = entropy_of(scaled(in, std::exp(middle)), unbounded);
    }
    check(std::abs(entropy - target) <= kTolerance, ExitCode::kNumeric,
          "layer {} at length {}: no factor in [1/{}, {}] gives attention the entropy of the training length, {:.3f} nats; the "
          "nearest gives {:.3f}",
          layer, length_, kLargestFactor, kLargestFactor, target, entropy);
    return std::exp(middle);
  }

  const Model& model_;
  const CalibrateOptions& options_;
  std::int64_t length_;
  ModelConfig config_;
  Calibration entry_;
};

}  // namespace

std::vector<CalibrationReport> calibrate(const Model& model, std::span<const EvalDocument> documents, const std::string& where,
                                         const CalibrateOptions& options) {
  const std::int64_t train = model.config().attention.train_length;
  check(train > 0, ExitCode::kUsage, "calibrate: the model does not say at which length it was trained");
  std::vector<std::int64_t> lengths = options.lengths;
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  check(!lengths.empty() && lengths.front() > train, ExitCode::kUsage,
        "calibrate: lengths must be above the training length, {}, where every factor is 1", train);
  const Fitter reference(model, options, train);
  const std::vector<double> target = reference.entropies(reference.inputs(documents, where));
  std::vector<CalibrationReport> reports;
  for (const std::int64_t length : lengths) {
    Fitter fitter(model, options, length);
    reports.push_back(fitter.fit(fitter.inputs(documents, where), target));
    log::info("calibrated length {}", length);
  }
  return reports;
}

Model with_calibration(const Model& model, std::span<const CalibrationReport> reports) {
  ModelConfig config = model.config();
  config.attention.calibration.clear();
  for (const CalibrationReport& report : reports) {
    config.attention.calibration.push_back(report.fitted);
    config.attention.calibration.back().targets = report.target;
  }
  Model copy(config, model.dtype());
  kernels::convert(model.parameters().values(), copy.parameters().values());
  return copy;
}

}  // namespace gau
