// The gradient check of whole models: every parameter of a tiny one, through embedding, layers, head and loss.
#pragma once

#include <string>
#include <vector>

#include "autograd/grad_check.h"
#include "layers/model_config.h"

namespace gau {

struct ModelCase {
  std::string name;
  ModelConfig config;
  std::string method;  ///< as in --methods
  bool composed = false;
};

/// Dot, cosine and keynorm attention, learned s, untied head, far regions, windows: two layers, dropout on, padding, some rows
/// only.
std::vector<ModelCase> model_cases();

/// Central differences of Σ cross-entropy against backward, in double, over a sample of each parameter's elements.
GradCheckResult check_model(const ModelCase& model_case);

}  // namespace gau
