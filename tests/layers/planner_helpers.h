// What the tests of plans share: a small model, and the phase that a plan's tables give to a pair of positions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "layers/planner.h"

namespace gau {

constexpr std::int64_t kTrain = 16;
constexpr std::int64_t kKeySize = 8;

inline ModelConfig model(std::int64_t layers = 3) {
  ModelConfig config;
  config.layers = layers;
  config.key_size = kKeySize;
  config.vocab_size = 100;
  config.attention.train_length = kTrain;
  return config;
}

inline BatchLayout layout(std::int64_t length, std::int64_t batch = 1) {
  BatchLayout result;
  result.batch = batch;
  result.length = length;
  return result;
}

inline AttentionPlan plan_of(const std::string& entry, std::int64_t length, std::int64_t layer = 0,
                             const ModelConfig& config = model()) {
  return Planner(config, parse_method(entry), DType::kF64).plan(layer, layout(length));
}

struct Phase {
  double cos = 1;
  double sin = 0;
};

inline Phase entry_of(const RotaryTable& table, std::int64_t position, std::int64_t pair) {
  if (!table.defined()) return {};
  const std::int64_t row = table.cos.dim(0) == 1 ? 0 : position;
  return {table.cos.at(row * kKeySize / 2 + pair), table.sin.at(row * kKeySize / 2 + pair)};
}

// Cosine and sine of the angle between q at i and k at j, as the tables of their region make it.
inline Phase phase_of(const AttentionPlan& plan, std::int64_t i, std::int64_t j, std::int64_t pair) {
  const Region region = plan.region(i, j);
  const RegionRotation& rotation = region == Region::kNear ? plan.near : region == Region::kLeft ? plan.left : plan.right;
  const Phase q = entry_of(rotation.q, i, pair);
  const Phase k = entry_of(rotation.k, j, pair);
  return {q.cos * k.cos + q.sin * k.sin, q.sin * k.cos - q.cos * k.sin};
}

// Whether two plans give every pair the same visibility, phase and bias, and every row the same factor.
inline bool same(const AttentionPlan& a, const AttentionPlan& b, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i) {
    if (std::abs(a.row_factor.at(i) - b.row_factor.at(i)) > 1e-12) return false;
    for (std::int64_t j = 0; j < length; ++j) {
      if (a.visible(i, j) != b.visible(i, j) || a.bias(i, j) != b.bias(i, j)) return false;
      if (!a.visible(i, j)) continue;
      for (std::int64_t pair = 0; pair < kKeySize / 2; ++pair) {
        const Phase p = phase_of(a, i, j, pair);
        const Phase q = phase_of(b, i, j, pair);
        if (std::abs(p.cos - q.cos) > 1e-11 || std::abs(p.sin - q.sin) > 1e-11) return false;
      }
    }
  }
  return true;
}

}  // namespace gau
