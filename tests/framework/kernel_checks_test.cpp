// Wrong shapes, types and indices are refused with one line that names the kernel and the operands.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "framework/error.h"
#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::indices;

const Tensor kSmall = Tensor::zeros({2, 3}, DType::kF32);
const Tensor kOther = Tensor::zeros({3, 3}, DType::kF32);
const Tensor kWide = Tensor::zeros({2, 3}, DType::kF64);

void expect_refused(const std::function<void()>& call, const std::vector<std::string>& words) {
  try {
    call();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST(KernelChecks, ShapesAndTypes) {
  expect_refused([] { kernels::add(kSmall, kOther, kSmall); }, {"kernel add", "[2, 3]", "[3, 3]"});
  expect_refused([] { kernels::add(kSmall, kWide, kSmall); }, {"kernel add", "b f64", "f32"});
  expect_refused([] { kernels::multiply(kSmall, {}, kSmall); }, {"kernel multiply", "b is undefined"});
  expect_refused([] { kernels::scale(indices({1, 2}), 2, indices({1, 2})); }, {"kernel scale", "i32"});
  expect_refused([] { kernels::convert(kSmall, kOther); }, {"kernel convert", "[3, 3]"});
  expect_refused([] { kernels::convert(kSmall, Tensor::zeros({6}, DType::kI32)); }, {"kernel convert", "f32 to i32"});
  expect_refused([] { kernels::scale_rows(kSmall, Tensor::zeros({3}, DType::kF32), kSmall); }, {"scale_rows", "[3]"});
  expect_refused([] { kernels::scale_columns(kSmall, Tensor::zeros({2}, DType::kF32), kSmall); }, {"scale_columns", "[2]"});
  expect_refused([] { kernels::column_dot(kSmall, kSmall, Tensor::zeros({2}, DType::kF32)); }, {"column_dot", "[2]"});
  expect_refused([] { kernels::swish_split(kSmall, {}, {}, Tensor::zeros({2, 2}, DType::kF32)); }, {"swish_split", "[2, 2]"});
  expect_refused(
      [] {
        kernels::swish_split_backward(kSmall, {}, Tensor::zeros({2, 1}, DType::kF32), {}, kSmall);
      },
      {"swish_split_backward", "[2, 1]"});
  expect_refused([] { kernels::normalize_rows(kSmall, kSmall, Tensor::zeros({3}, DType::kF32)); }, {"normalize_rows", "[3]"});
  expect_refused(
      [] {
        kernels::rotate(Tensor::zeros({1, 2, 3}, DType::kF32), {kSmall, kSmall}, {}, false, kSmall);
      },
      {"rotate", "[1, 2, 3]"});
}

TEST(KernelChecks, Indices) {
  expect_refused([] { kernels::gather_rows(kSmall, indices({0, 2}), kSmall); }, {"gather_rows", "rows[1] = 2"});
  expect_refused([] { kernels::gather_rows(kSmall, indices({-2, 0}), kSmall); }, {"gather_rows", "rows[0] = -2"});
  expect_refused([] { kernels::scatter_rows(kSmall, indices({1, 1}), kOther); }, {"scatter_rows", "row 1 appears twice"});
  expect_refused(
      [] {
        kernels::embed(kOther, kSmall, indices({3}), {}, Tensor::zeros({1, 3}, DType::kF32));
      },
      {"embed", "ids[0] = 3"});
  expect_refused(
      [] {
        kernels::embed(kOther, kSmall, indices({0}), indices({2}), Tensor::zeros({1, 3}, DType::kF32));
      },
      {"embed", "types[0] = 2"});
  expect_refused(
      [] {
        kernels::cross_entropy(kSmall, indices({0, 3}), Tensor::zeros({2}, DType::kF64), indices({0, 0}),
                               Tensor::zeros({2}, DType::kF32));
      },
      {"cross_entropy", "labels[1] = 3"});
  const RotaryTable table{Tensor::zeros({2, 2}, DType::kF32), Tensor::zeros({2, 2}, DType::kF32)};
  const Tensor x = Tensor::zeros({1, 3, 4}, DType::kF32);
  expect_refused([&] { kernels::rotate(x, table, {}, false, x); }, {"rotate", "too short"});
  expect_refused([&] { kernels::rotate(x, table, indices({0, 1, 2}), false, x); }, {"rotate", "positions[2] = 2"});
}

TEST(KernelChecks, Dropout) {
  DropoutSpec spec;
  spec.rate = 1;
  expect_refused([&] { kernels::dropout(kSmall, spec, kSmall); }, {"dropout", "rate of 1"});
  spec.rate = 0.5;
  spec.rows = indices({0});
  expect_refused([&] { kernels::dropout(kSmall, spec, kSmall); }, {"dropout", "rows differ"});
  spec.rows = {};
  spec.length = 0;
  expect_refused([&] { kernels::dropout(kSmall, spec, kSmall); }, {"dropout", "0 rows"});
}

TEST(KernelChecks, Optimizers) {
  AdamStep step;
  step.step = 0;
  expect_refused([&] { kernels::adamw(step, kSmall, kSmall, kSmall, kSmall); }, {"adamw", "step 0"});
  expect_refused([] { kernels::adamw({}, kOther, kSmall, kSmall, kSmall); }, {"adamw", "[3, 3]"});
  expect_refused([] { kernels::lamb_update({}, kSmall, kSmall, kSmall, kSmall, kOther); }, {"lamb_update", "[3, 3]"});
}

TEST(KernelChecks, Attention) {
  const Tensor q = Tensor::zeros({1, 2, 4}, DType::kF32), v = Tensor::zeros({1, 2, 6}, DType::kF32);
  const Tensor lse = Tensor::zeros({1, 2}, DType::kF64);
  AttentionInputs in;
  in.q_near = in.k_near = q;
  in.v = v;
  kernels::attention(in, {}, {}, Tensor::zeros({1, 2, 6}, DType::kF32), lse);
  expect_refused(
      [&] {
        kernels::attention(in, {}, {}, Tensor::zeros({1, 2, 5}, DType::kF32), lse);
      },
      {"attention", "[1, 2, 5]"});
  AttentionPlan far;
  far.near_limit = 1;
  expect_refused([&] { kernels::attention(in, far, {}, v, lse); }, {"attention", "q_left is undefined"});
  in.rows = indices({0, 2});
  expect_refused([&] { kernels::attention(in, {}, {}, v, lse); }, {"attention", "rows[1] = 2"});
  in.rows = {};
  in.key_mask = indices({1});
  expect_refused([&] { kernels::attention(in, {}, {}, v, lse); }, {"attention", "key_mask"});
  in.key_mask = {};
  in.rows = indices({0, 2});
  in.length = 4;
  in.first_key = 3;
  expect_refused([&] { kernels::attention(in, {}, {}, v, lse); }, {"attention", "from key 3 on are no part of 4 keys"});
  in.first_key = 2;
  expect_refused([&] { kernels::attention_weights(in, {}, Tensor::zeros({1, 2, 2}, DType::kF32)); }, {"a part of the keys"});
}

}  // namespace
}  // namespace gau
