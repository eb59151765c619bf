// One forward pass; softmax in double over the logits of the masked rows.
#include "train/fill.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/error.h"

namespace gau {
namespace {

std::vector<FillCandidate> likeliest(const Tensor& logits, std::int64_t row, std::int64_t top) {
  const std::int64_t vocabulary = logits.columns();
  std::vector<double> values(static_cast<std::size_t>(vocabulary));
  for (std::int64_t v = 0; v < vocabulary; ++v) values[static_cast<std::size_t>(v)] = logits.at(row * vocabulary + v);
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto probable = [&](std::int32_t a, std::int32_t b) {
    const double pa = values[static_cast<std::size_t>(a)];
    const double pb = values[static_cast<std::size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  };
  const std::int64_t kept = std::min(top, vocabulary);
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), probable);
  std::vector<FillCandidate> candidates;
  for (std::int64_t i = 0; i < kept; ++i) {
    const std::int32_t id = order[static_cast<std::size_t>(i)];
    candidates.push_back({id, values[static_cast<std::size_t>(id)] / sum});
  }
  return candidates;
}

}  // namespace

FilledText fill_masks(const Model& model, const Tokenizer& tokenizer, const Method& method, const std::string& text,
                      std::int64_t top) {
  const NoGrad no_grad;
  std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  const SpecialIds& special = tokenizer.vocabulary().special();
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == special.mask) rows.push_back(static_cast<std::int32_t>(i));
  }
  check(!rows.empty(), ExitCode::kUsage, "the text has no {}; write it where a token is to be guessed",
        tokenizer.vocabulary().token(special.mask));
  const auto length = static_cast<std::int64_t>(ids.size());
  ModelInputs inputs;
  inputs.ids = Tensor::from(ids, {1, length});
  inputs.rows = Tensor::from(rows, {static_cast<std::int64_t>(rows.size())});
  Planner planner(model.config(), method, model.dtype());
  const Variable hidden = model.hidden(Context{}, inputs, planner);
  const Tensor logits = model.logits(Context{}, hidden, length, inputs.rows).value();
  FilledText filled;
  for (std::size_t m = 0; m < rows.size(); ++m) {
    filled.masks.push_back({rows[m], likeliest(logits, static_cast<std::int64_t>(m), top)});
    ids[static_cast<std::size_t>(rows[m])] = filled.masks.back().candidates.front().id;
  }
  filled.best = tokenizer.decode(ids);
  return filled;
}

}  // namespace gau
