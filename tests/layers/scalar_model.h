// A plain scalar GAU-α: loops over doubles straight from the formulas, sharing no code with the program but its structs.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "layers/model.h"

namespace gau::scalar {

using Matrix = std::vector<std::vector<double>>;

/// What attention is for one pair of positions.
struct Attention {
  std::function<bool(std::int64_t i, std::int64_t j)> visible = [](std::int64_t, std::int64_t) { return true; };
  /// Relative position that rotation sees for query i and key j.
  std::function<double(std::int64_t i, std::int64_t j)> distance = [](std::int64_t i, std::int64_t j) {
    return static_cast<double>(i - j);
  };
  std::function<double(std::int64_t i, std::int64_t j)> bias = [](std::int64_t, std::int64_t) { return 0.0; };
  /// Factor on the logits given the number of valid keys of the sequence.
  std::function<double(std::int64_t keys)> temperature = [](std::int64_t) { return 1.0; };
};

inline Matrix matrix(const Model& model, const std::string& name) {
  const Tensor& value = model.parameters().find(name).variable.value();
  const std::int64_t columns = value.columns();
  Matrix m(static_cast<std::size_t>(value.rows()), std::vector<double>(static_cast<std::size_t>(columns)));
  for (std::int64_t i = 0; i < value.size(); ++i)
    m[static_cast<std::size_t>(i / columns)][static_cast<std::size_t>(i % columns)] = value.at(i);
  return m;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline std::vector<double> times(const Matrix& w, const std::vector<double>& x) {
  std::vector<double> y;
  for (const auto& row : w) y.push_back(dot(row, x));
  return y;
}

inline void rms(std::vector<double>& x) {
  const double factor = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + 1e-12);
  for (double& value : x) value *= factor;
}

inline void unit(std::vector<double>& x) {
  const double norm = std::sqrt(dot(x, x));
  for (double& value : x) value /= norm + 1e-9;
}

/// Σ over pairs of the rotated product at relative position `distance`: Re of (q conj k e^{i θ distance}) pair by pair.
inline double rotated(const std::vector<double>& q, const std::vector<double>& k, double distance) {
  double sum = 0;
  for (std::size_t pair = 0; pair < q.size() / 2; ++pair) {
    const double angle = distance * std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(q.size()));
    const double a = q[2 * pair], b = q[2 * pair + 1], c = k[2 * pair], d = k[2 * pair + 1];
    sum += (a * c + b * d) * std::cos(angle) + (a * d - b * c) * std::sin(angle);
  }
  return sum;
}

/// Logits of every position of one sequence; `valid[j]` tells which are tokens.
inline Matrix logits(const Model& model, const std::vector<std::int32_t>& ids, const std::vector<bool>& valid,
                     const Attention& attention) {
  const ModelConfig& config = model.config();
  const Matrix word = matrix(model, "gau_alpha.embeddings.word_embeddings.weight");
  const Matrix type = matrix(model, "gau_alpha.embeddings.token_type_embeddings.weight");
  const std::size_t length = ids.size();
  const auto e = static_cast<std::size_t>(config.intermediate), d = static_cast<std::size_t>(config.key_size);
  std::int64_t keys = 0;
  for (const bool token : valid) keys += token;

  Matrix x;
  for (const std::int32_t id : ids) {
    std::vector<double> row = word[static_cast<std::size_t>(id)];
    for (std::size_t c = 0; c < row.size(); ++c) row[c] += type[0][c];
    rms(row);
    x.push_back(row);
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "gau_alpha.encoder.layer." + std::to_string(layer) + ".gau.";
    const Matrix in = matrix(model, name + "i_dense.weight"), out = matrix(model, name + "o_dense.weight");
    const std::vector<double> gamma_q = matrix(model, name + "q_scaleoffset.weight")[0];
    const std::vector<double> gamma_k = matrix(model, name + "k_scaleoffset.weight")[0];
    Matrix h, q, k;
    for (std::size_t i = 0; i < length; ++i) {
      h.push_back(times(in, x[i]));
      for (double& value : h[i]) value /= 1 + std::exp(-value);
      q.emplace_back();
      k.emplace_back();
      for (std::size_t c = 0; c < d; ++c) {
        q[i].push_back(h[i][2 * e + c] * gamma_q[c]);
        k[i].push_back(h[i][2 * e + c] * gamma_k[c]);
      }
      if (config.attention.kind == AttentionKind::kCosine) unit(q[i]);
      if (config.attention.kind != AttentionKind::kDot) unit(k[i]);
    }
    double scale = 1;
    if (config.attention.kind == AttentionKind::kDot) scale = 1 / std::sqrt(static_cast<double>(d));
    if (config.attention.kind == AttentionKind::kCosine) scale = config.attention.scale;
    scale *= attention.temperature(keys);

    Matrix next;
    for (std::size_t i = 0; i < length; ++i) {
      std::vector<double> weights(length, 0.0);
      double sum = 0;
      for (std::size_t j = 0; j < length; ++j) {
        const auto qi = static_cast<std::int64_t>(i), kj = static_cast<std::int64_t>(j);
        if (!valid[j] || !attention.visible(qi, kj)) continue;
        weights[j] = std::exp(scale * rotated(q[i], k[j], attention.distance(qi, kj)) + attention.bias(qi, kj));
        sum += weights[j];
      }
      std::vector<double> gated(e, 0.0);
      for (std::size_t j = 0; j < length && sum > 0; ++j) {
        for (std::size_t c = 0; c < e; ++c) gated[c] += weights[j] / sum * h[j][e + c];
      }
      for (std::size_t c = 0; c < e; ++c) gated[c] *= h[i][c];
      std::vector<double> row = times(out, gated);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] += x[i][c];
      rms(row);
      next.push_back(row);
    }
    x = next;
  }
  const Matrix decoder = config.tied ? word : matrix(model, "cls.predictions.decoder.weight");
  Matrix result;
  for (const auto& row : x) result.push_back(times(decoder, row));
  return result;
}

}  // namespace gau::scalar
