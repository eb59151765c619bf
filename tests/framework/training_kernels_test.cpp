// Embedding, cross-entropy and optimizers against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_close;
using test::indices;
using test::kTolerance;
using test::random_indices;
using test::random_tensor;
using test::same_bits;

template <class T>
class TrainingKernels : public ::testing::Test {};
using RealTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(TrainingKernels, RealTypes);

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); }

TYPED_TEST(TrainingKernels, Embed) {
  using T = TypeParam;
  const Tensor word = random_tensor<T>({11, 6}, 1), type = random_tensor<T>({2, 6}, 2);
  const Tensor ids = random_indices({3, 7}, 3, 0, 11), types = random_indices({3, 7}, 4, 0, 2);
  Tensor out = Tensor::empty({3, 7, 6}, word.dtype());
  for (const bool with_types : {true, false}) {
    kernels::embed(word, type, ids, with_types ? types : Tensor(), out);
    std::vector<double> expected;
    for (std::int64_t n = 0; n < 21; ++n) {
      const auto id = ids.data<std::int32_t>()[n], kind = with_types ? types.data<std::int32_t>()[n] : 0;
      for (std::int64_t c = 0; c < 6; ++c) expected.push_back(word.at(id * 6 + c) + type.at(kind * 6 + c));
    }
    expect_close(out, expected, kTolerance<T>);
  }
}

TYPED_TEST(TrainingKernels, EmbedBackwardAddsAndSkipsPadding) {
  using T = TypeParam;
  constexpr std::int64_t tokens = 700, columns = 5, kinds = 40;
  constexpr std::int32_t pad = 2;
  const Tensor dout = random_tensor<T>({tokens, columns}, 1);
  const Tensor ids = random_indices({tokens}, 2, 0, kinds), types = random_indices({tokens}, 3, 0, 2);
  const Tensor before = random_tensor<T>({kinds, columns}, 4), type_before = random_tensor<T>({2, columns}, 5);
  std::vector<double> words = {}, table = {};
  for (std::int64_t i = 0; i < before.size(); ++i) words.push_back(before.at(i));
  for (std::int64_t i = 0; i < type_before.size(); ++i) table.push_back(type_before.at(i));
  for (std::int64_t n = 0; n < tokens; ++n) {
    const auto id = ids.data<std::int32_t>()[n], kind = types.data<std::int32_t>()[n];
    for (std::int64_t c = 0; c < columns; ++c) {
      if (id != pad) words[static_cast<std::size_t>(id * columns + c)] += dout.at(n * columns + c);
      table[static_cast<std::size_t>(kind * columns + c)] += dout.at(n * columns + c);
    }
  }
  Tensor dword = before.clone(), dtype_table = type_before.clone();
  kernels::embed_backward(dout, ids, types, pad, dword, dtype_table);
  expect_close(dword, words, kTolerance<T>);
  expect_close(dtype_table, table, kTolerance<T>);
  // Either table alone, and types absent.
  Tensor alone = before.clone();
  kernels::embed_backward(dout, ids, types, pad, alone, {});
  EXPECT_TRUE(same_bits(alone, dword));
  Tensor only_type = Tensor::zeros({2, columns}, dout.dtype());
  kernels::embed_backward(dout, ids, {}, pad, {}, only_type);
  for (std::int64_t c = 0; c < columns; ++c) EXPECT_EQ(only_type.at(columns + c), 0);
  EXPECT_NE(only_type.at(0), 0);
}

TYPED_TEST(TrainingKernels, CrossEntropy) {
  using T = TypeParam;
  constexpr std::int64_t rows = 9, columns = 203;
  Tensor logits = random_tensor<T>({rows, columns}, 1, 20);
  Tensor labels = random_indices({rows}, 2, 0, columns);
  labels.data<std::int32_t>()[4] = -1;
  labels.data<std::int32_t>()[5] = -100;
  logits.data<T>()[3 * columns + 17] = logits.data<T>()[3 * columns + 90] = T(25);  // the first of equals wins
  Tensor loss = Tensor::empty({rows}, DType::kF64), predicted = Tensor::empty({rows}, DType::kI32);
  Tensor kept = Tensor::empty({rows}, logits.dtype()), dlogits = like(logits);
  kernels::cross_entropy(logits, labels, loss, predicted, kept);
  kernels::cross_entropy_backward(logits, labels, kept, 0.5, dlogits);
  for (std::int64_t m = 0; m < rows; ++m) {
    double sum = 0;
    std::int64_t best = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += std::exp(logits.at(m * columns + c));
      if (logits.at(m * columns + c) > logits.at(m * columns + best)) best = c;
    }
    const std::int32_t label = labels.data<std::int32_t>()[m];
    EXPECT_EQ(predicted.data<std::int32_t>()[m], best);
    EXPECT_NEAR(loss.at(m), label < 0 ? 0 : std::log(sum) - logits.at(m * columns + label), 30 * kTolerance<T>);
    EXPECT_NEAR(kept.at(m), std::log(sum), 30 * kTolerance<T>);
    for (std::int64_t c = 0; c < columns; ++c) {
      const double softmax = std::exp(logits.at(m * columns + c)) / sum;
      const double expected = label < 0 ? 0 : 0.5 * (softmax - (c == label ? 1 : 0));
      ASSERT_NEAR(dlogits.at(m * columns + c), expected, kTolerance<T>);
    }
  }
  EXPECT_EQ(predicted.data<std::int32_t>()[3], 17);
  Tensor in_place = logits.clone();
  kernels::cross_entropy_backward(in_place, labels, kept, 0.5, in_place);
  EXPECT_TRUE(same_bits(in_place, dlogits));
}

TYPED_TEST(TrainingKernels, CrossEntropyOfExtremes) {
  using T = TypeParam;
  constexpr std::int64_t columns = 21'128;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> values(4 * columns, T(0));
  for (std::size_t c = 0; c < columns; ++c) {
    values[columns + c] = T(1e30);  // uniform and huge
    values[2 * columns + c] = T(-1e30);
    values[3 * columns + c] = nan;
  }
  values[2 * columns + 5] = T(1e30);
  const Tensor logits = Tensor::from(values, {4, columns}), labels = indices({0, 1, 5, 0});
  Tensor loss = Tensor::empty({4}, DType::kF64), predicted = Tensor::empty({4}, DType::kI32);
  Tensor kept = Tensor::empty({4}, logits.dtype());
  kernels::cross_entropy(logits, labels, loss, predicted, kept);
  EXPECT_NEAR(loss.at(0), std::log(21'128.0), 1e-6);
  EXPECT_TRUE(std::isfinite(loss.at(1)));
  EXPECT_EQ(loss.at(2), 0);
  EXPECT_EQ(predicted.data<std::int32_t>()[2], 5);
  EXPECT_TRUE(std::isnan(loss.at(3))) << "a loss that is not a number is seen, not hidden";
}

TYPED_TEST(TrainingKernels, AdamW) {
  using T = TypeParam;
  constexpr std::int64_t n = 20'011;
  const Tensor gradient = random_tensor<T>({n}, 1), start = random_tensor<T>({n}, 2);
  Tensor value = start.clone(), first = Tensor::zeros({n}, start.dtype()), second = Tensor::zeros({n}, start.dtype());
  AdamStep step;
  step.learning_rate = 0.01;
  step.weight_decay = 0.1;
  step.gradient_scale = 0.25;
  std::vector<double> w, m(n, 0.0), v(n, 0.0);
  for (std::int64_t i = 0; i < n; ++i) w.push_back(start.at(i));
  for (std::int64_t t = 1; t <= 3; ++t) {
    step.step = t;
    kernels::adamw(step, gradient, value, first, second);
    for (std::size_t i = 0; i < n; ++i) {
      const double g = 0.25 * gradient.at(static_cast<std::int64_t>(i));
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mhat = m[i] / (1 - std::pow(0.9, t)), vhat = v[i] / (1 - std::pow(0.999, t));
      w[i] -= 0.01 * (mhat / (std::sqrt(vhat) + 1e-8) + 0.1 * w[i]);
    }
  }
  expect_close(value, w, kTolerance<T>);
  expect_close(first, m, kTolerance<T>);
  // Second moments are small: their relative error counts (1 - 0.999 in float would be off by 1e-5).
  for (std::int64_t i = 0; i < n; ++i) {
    const double expected = v[static_cast<std::size_t>(i)];
    ASSERT_NEAR(second.at(i), expected, kTolerance<T> * expected);
  }
}

TYPED_TEST(TrainingKernels, Lamb) {
  using T = TypeParam;
  constexpr std::int64_t n = 1003;
  const Tensor gradient = random_tensor<T>({n}, 1), value = random_tensor<T>({n}, 2);
  const Tensor m0 = random_tensor<T>({n}, 3);
  Tensor first = m0.clone(), second = Tensor::zeros({n}, value.dtype()), update = like(value);
  AdamStep step;
  step.epsilon = 1e-6;
  step.weight_decay = 0.01;
  step.gradient_scale = 2;
  kernels::lamb_update(step, gradient, value, first, second, update);
  std::vector<double> expected, moved;
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = 2 * gradient.at(i), m = 0.9 * m0.at(i) + 0.1 * g, v = 0.001 * g * g;
    expected.push_back(m / (std::sqrt(v) + 1e-6) + 0.01 * value.at(i));
    moved.push_back(value.at(i) - 0.5 * update.at(i));
  }
  // The ratio is large where v is small: relative error counts.
  expect_close(update, expected, 10 * kTolerance<T>);
  Tensor after = value.clone();
  kernels::apply_update(0.5, update, after);
  expect_close(after, moved, kTolerance<T>);
}

}  // namespace
}  // namespace gau
