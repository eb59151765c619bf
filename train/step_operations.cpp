#include "train/step_operations.h"

namespace gau {

double step_operations(const ModelConfig& model, double tokens, std::int64_t length, double masked) {
  const auto h = static_cast<double>(model.hidden), e = static_cast<double>(model.intermediate),
             d = static_cast<double>(model.key_size), keys = static_cast<double>(length);
  const double all = 2 * tokens * (h * (2 * e + d) + e * h + keys * (d + e));
  // The last layer's gate, queries, weighted sum and output projection are computed for masked rows alone.
  const double last = 2 * tokens * h * (e + d) + 2 * masked * (h * e + e * h + keys * (d + e));
  const double head = 2 * masked * h * static_cast<double>(model.vocab_size);
  // Backward has two products for each of forward's.
  return 3 * (static_cast<double>(model.layers - 1) * all + last + head);
}

}  // namespace gau
