// Training steps of small models on sequences that ranks share, as threads: what the tests of both exchanges run.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "framework/thread_ranks.h"
#include "layers/model.h"

namespace gau::test {

struct SharedCase {
  std::string name, method;
  AttentionKind kind = AttentionKind::kDot;
  std::string position = "rope";  // of the model
  bool learn_scale = false;
  bool own_positions = false;  // of each sample
};

inline ModelConfig config_of(const SharedCase& c) {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 24;
  config.intermediate = 40;
  config.key_size = 16;
  config.vocab_size = 30;
  config.attention.kind = c.kind;
  config.attention.scale = 12;
  config.attention.position = c.position;
  config.attention.learn_scale = c.learn_scale;
  config.attention.train_length = 64;
  return config;
}

struct Masked {
  ModelInputs inputs;
  Tensor labels;
};

// A batch with padding behind the first sequence, holes in both, and about a seventh of the rows wanted.
inline Masked batch_of(std::int64_t batch, std::int64_t length, bool own_positions) {
  std::vector<std::int32_t> ids, types, valid, rows, labels;
  std::vector<double> positions;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      const auto n = static_cast<std::int32_t>(b * length + i);
      ids.push_back(1 + (n * n + 3 * n) % 29);
      types.push_back(n % 2);
      const bool token = i % 11 != 5 && (b > 0 || i < length - length / 4);
      valid.push_back(token);
      positions.push_back(static_cast<double>(i) * 1.5 + static_cast<double>(b));
      if (token && (n * 5) % 7 == 3) {
        rows.push_back(n);
        labels.push_back(n % 29);
      }
    }
  }
  while (rows.size() % 32 != 0) {
    rows.push_back(-1);
    labels.push_back(-1);
  }
  Masked masked;
  masked.inputs.ids = Tensor::from(ids, {batch, length});
  masked.inputs.types = Tensor::from(types, {batch, length});
  masked.inputs.key_mask = Tensor::from(valid, {batch, length});
  if (own_positions) masked.inputs.positions = Tensor::from(positions, {batch, length});
  masked.inputs.rows = Tensor::from(rows, {static_cast<std::int64_t>(rows.size())});
  masked.labels = Tensor::from(labels, {static_cast<std::int64_t>(labels.size())});
  return masked;
}

struct Outcome {
  Tensor row_loss, predicted, gradients;
  double sum = 0;
  std::int64_t correct = 0;
};

// Forward and backward with dropout; `ranks` = 1 goes without a group.
inline Outcome run(const SharedCase& c, DType dtype, int ranks, std::int64_t batch, std::int64_t length,
                   SequenceExchange exchange = SequenceExchange::kGather) {
  Outcome whole;
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator& communicator) {
    Model model(config_of(c), dtype);
    model.initialize(4);
    Planner planner(model.config(), parse_method(c.method), dtype);
    const Masked masked = batch_of(batch, length, c.own_positions);
    Context context;
    context.training = true;
    context.seed = 9;
    context.step = 3;
    context.first_sample = 2;
    if (ranks > 1) context.group = RankGroup::of(communicator, ranks, exchange);
    const MaskedLoss loss = model.masked_loss(context, masked.inputs, masked.labels, planner);
    model.parameters().zero_gradients();
    backward(loss.sum);
    const Tensor gradients = model.parameters().gradients().to(DType::kF64);
    const std::lock_guard lock(mutex);
    if (!whole.gradients.defined()) {
      whole = {loss.row_loss, loss.predicted, gradients.clone(), loss.sum.value().item(), loss.correct};
      return;
    }
    EXPECT_EQ(loss.sum.value().item(), whole.sum);
    EXPECT_EQ(std::memcmp(loss.row_loss.raw(), whole.row_loss.raw(), loss.row_loss.bytes()), 0);
    for (std::int64_t i = 0; i < gradients.size(); ++i) whole.gradients.data<double>()[i] += gradients.at(i);
  });
  return whole;
}

/// max |a - b| / max |b|
inline double difference(const Tensor& a, const Tensor& b) {
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(a.at(i) - b.at(i));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return most / scale;
}

/// A method of each kind.
inline std::vector<SharedCase> shared_cases() {
  return {SharedCase{"rope", "rope"},
          SharedCase{"cosine", "rope", AttentionKind::kCosine},
          SharedCase{"keynorm", "rope", AttentionKind::kKeyNorm},
          SharedCase{"learned", "rope", AttentionKind::kCosine, "rope", true},
          SharedCase{"infoscale", "rope+infoscale"},
          SharedCase{"valid", "rope+logn:count=valid"},
          SharedCase{"window", "window:w=40"},
          SharedCase{"sinks", "lm-infinite:window=48;sinks=3;rows=2"},
          SharedCase{"streaming", "streaming:window=32;sinks=4"},
          SharedCase{"rerope", "rerope:w=20"},
          SharedCase{"leaky", "leaky-rerope:w=20;k=8"},
          SharedCase{"alibi", "alibi"},
          SharedCase{"yarn", "yarn"},
          SharedCase{"hwfa", "hwfa:w=24", AttentionKind::kDot, "hwfa:w=24"},
          SharedCase{"hwfa2", "hwfa2:w=24", AttentionKind::kDot, "hwfa2:w=24"},
          SharedCase{"invariant", "rope+scale-invariant"},
          SharedCase{"own", "rope", AttentionKind::kDot, "rope", false, true}};
}

}  // namespace gau::test
