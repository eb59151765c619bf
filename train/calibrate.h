// Fits the law `calibrated`: a factor for each layer and length that gives attention the mean row entropy at that length which
// it has at L_train. Training-free, and without an assumption about how entropy grows with length.
//
// Layers are fitted in order, each on the hidden states that the factors before it make. Scaling logits up sharpens attention,
// so the factor is found by bisection.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/model.h"
#include "train/eval_targets.h"

namespace gau {

struct CalibrateOptions {
  std::vector<std::int64_t> lengths;  ///< above L_train
  std::string position;               ///< a position term; empty: the model's own
  std::int64_t tokens = 16384;        ///< of text at each length, at least one window
  std::int64_t rows = 128;            ///< rows of a window that are measured, evenly spaced
};

/// What was fitted at one length, beside the factors: the mean row entropy of each layer, in nats.
struct CalibrationReport {
  Calibration fitted;
  std::vector<double> target;  ///< at L_train
  std::vector<double> before;  ///< at this length with factor 1 in this layer, fitted factors in those before it
  std::vector<double> after;   ///< with the factor
};

/// Fits every length on `documents`; `where` names them in messages. Layers with a window of their own keep factor 1. Throws
/// Error(kUsage) for a model without L_train and for lengths that are not above it, Error(kData) when no document is long
/// enough, Error(kNumeric) when no factor within [1/64, 64] reaches the entropy of a layer.
std::vector<CalibrationReport> calibrate(const Model& model, std::span<const EvalDocument> documents, const std::string& where,
                                         const CalibrateOptions& options);

/// A copy of the model that holds the factors (and no others).
Model with_calibration(const Model& model, std::span<const CalibrationReport> reports);

}  // namespace gau
