// Products against the plain triple loop in double, and the bits that must not depend on threads or on other rows.
#include "framework/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "framework/error.h"
#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_thread_invariant;
using test::random_tensor;
using test::same_bits;

struct Case {
  std::int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  double alpha = 1;
  bool accumulate = false;
};

template <class T>
struct Product {
  Tensor a, b, c;
  MatrixView view_a, view_b, view_c;

  explicit Product(const Case& x) {
    const auto stored = [&](std::int64_t rows, std::int64_t cols, bool transposed) {
      return transposed ? Shape{x.batch, cols, rows} : Shape{x.batch, rows, cols};
    };
    a = random_tensor<T>(stored(x.m, x.k, x.transpose_a), 1);
    b = random_tensor<T>(stored(x.k, x.n, x.transpose_b), 2);
    c = random_tensor<T>({x.batch, x.m, x.n}, 3);
    view_a = MatrixView::batched(a, x.transpose_a);
    view_b = MatrixView::batched(b, x.transpose_b);
    view_c = MatrixView::batched(c);
  }
};

double element(const MatrixView& view, std::int64_t item, std::int64_t row, std::int64_t col) {
  if (view.transposed) std::swap(row, col);
  const std::int64_t batch = view.batch == 1 ? 0 : item;
  return view.tensor.data<double>()[view.offset + batch * view.batch_stride + row * view.row_stride + col];
}

MatrixView as_double(MatrixView view) {
  view.tensor = view.tensor.to(DType::kF64);
  return view;
}

std::vector<double> naive(const MatrixView& real_a, const MatrixView& real_b, const MatrixView& real_c, double alpha,
                          bool accumulate) {
  const MatrixView a = as_double(real_a), b = as_double(real_b), c = as_double(real_c);
  std::vector<double> result;
  for (std::int64_t item = 0; item < c.batch; ++item) {
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < a.cols; ++p) sum += element(a, item, i, p) * element(b, item, p, j);
        result.push_back(alpha * sum + (accumulate ? element(c, item, i, j) : 0));
      }
    }
  }
  return result;
}

template <class T>
void expect_product(const Case& x) {
  SCOPED_TRACE(fmt::format("{} x {}x{}x{} {}{} alpha {} accumulate {}", x.batch, x.m, x.n, x.k, x.transpose_a, x.transpose_b,
                           x.alpha, x.accumulate));
  const Product<T> p(x);
  const std::vector<double> expected = naive(p.view_a, p.view_b, p.view_c, x.alpha, x.accumulate);
  kernels::gemm(p.view_a, p.view_b, p.view_c, x.alpha, x.accumulate);
  test::expect_close(p.c, expected, test::kTolerance<T> * std::sqrt(static_cast<double>(x.k) + 1));
}

const std::vector<Case> kCases = {{1, 1, 1, 1, false, false},
                                  {1, 5, 7, 3, false, false},
                                  {1, 5, 7, 3, true, false},
                                  {1, 5, 7, 3, false, true},
                                  {1, 5, 7, 3, true, true},
                                  {1, 1, 33, 70, false, true},
                                  {1, 70, 1, 33, false, false},
                                  {1, 300, 40, 20, false, true},
                                  {1, 40, 300, 300, true, false},
                                  {3, 16, 16, 16, false, true},
                                  {5, 9, 4, 31, true, false},
                                  {1, 20, 20, 20, false, true, 0.5},
                                  {1, 20, 20, 20, true, false, 1, true},
                                  {4, 12, 20, 8, false, false, -2, true},
                                  {2, 6, 5, 4, true, true, 3, true},
                                  {1, 513, 65, 17, false, true},
                                  {40, 64, 64, 32, false, true},
                                  {1, 100, 1100, 260, false, false}};

TEST(Gemm, Float) {
  for (const Case& x : kCases) expect_product<float>(x);
}

TEST(Gemm, Double) {
  for (const Case& x : kCases) expect_product<double>(x);
}

TEST(Gemm, EmptyAndZeroDepth) {
  const Tensor a = Tensor::empty({3, 0}, DType::kF32), b = Tensor::empty({0, 2}, DType::kF32);
  const Tensor c = random_tensor<float>({3, 2}, 1), before = c.clone();
  kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(c), 1, true);
  EXPECT_TRUE(same_bits(c, before));
  kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(c));
  test::expect_close(c, std::vector<double>(6, 0.0), 0);
  const Tensor none = Tensor::empty({0, 2}, DType::kF64);
  kernels::gemm(MatrixView::of(Tensor::empty({0, 4}, DType::kF64)), MatrixView::of(Tensor::zeros({4, 2}, DType::kF64)),
                MatrixView::of(none));
}

template <class T>
void expect_shared_operands() {
  const Tensor batch_a = random_tensor<T>({3, 4, 5}, 1), batch_b = random_tensor<T>({3, 5, 6}, 2);
  const Tensor one_a = random_tensor<T>({4, 5}, 3), one_b = random_tensor<T>({5, 6}, 4);
  for (const auto& [a, b] : {std::pair{MatrixView::batched(batch_a), MatrixView::of(one_b)},
                             std::pair{MatrixView::of(one_a), MatrixView::batched(batch_b)},
                             std::pair{MatrixView::of(one_a), MatrixView::of(one_b)}}) {
    const Tensor c = Tensor::zeros({3, 4, 6}, DTypeOf<T>::value);
    const MatrixView view = MatrixView::batched(c);
    kernels::gemm(a, b, view);
    test::expect_close(c, naive(a, b, view, 1, false), test::kTolerance<T>);
  }
}

TEST(Gemm, SharedOperands) {
  expect_shared_operands<float>();
  expect_shared_operands<double>();
}

TEST(Gemm, StridesOffsetsAndTransposedDestination) {
  const Tensor a = random_tensor<float>({10, 12}, 1), b = random_tensor<float>({10, 12}, 2);
  const Tensor c = random_tensor<float>({10, 12}, 3);
  MatrixView view_a{a, 4, 5, 12, false, 14}, view_b{b, 5, 3, 12, true, 25}, view_c{c, 4, 3, 12, true, 37};
  const Tensor before = c.clone();
  const std::vector<double> expected = naive(view_a, view_b, view_c, 1, false);
  kernels::gemm(view_a, view_b, view_c);
  int changed = 0;
  for (std::int64_t i = 0; i < c.size(); ++i) changed += c.at(i) != before.at(i) ? 1 : 0;
  EXPECT_EQ(changed, 12) << "only the view is written";
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(element(as_double(view_c), 0, i, j), expected[static_cast<std::size_t>(i * 3 + j)], 1e-5);
    }
  }
}

TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  // Sums over thousands of tokens with small results are where a library would split the sum among threads.
  for (const Case& x : std::vector<Case>{{1, 128, 320, 4096, true, false},
                                         {1, 128, 64, 8192, true, false},
                                         {1, 576, 128, 4096, true, false},
                                         {1, 768, 320, 512, true, false},
                                         {1, 128, 256, 2048, true, false, 1, true},
                                         {1, 512, 320, 128, false, true},
                                         {1, 64, 1000, 96, false, true},
                                         {1, 1000, 96, 64, false, false},
                                         {1, 17, 19, 2000, false, true},
                                         {32, 64, 64, 64, false, true},
                                         {32, 64, 96, 64, true, false}}) {
    expect_thread_invariant("gemm", [&] {
      const Product<float> p(x);
      kernels::gemm(p.view_a, p.view_b, p.view_c, x.alpha, x.accumulate);
      return std::vector<Tensor>{p.c};
    });
  }
  expect_thread_invariant("gemm f64", [] {
    const Product<double> p({1, 128, 64, 1024, true, false});
    kernels::gemm(p.view_a, p.view_b, p.view_c);
    return std::vector<Tensor>{p.c};
  });
}

// A row of the product is the same whatever stands in the rows beside it, and however many there are.
template <class T>
void expect_rows_independent(std::int64_t n, std::int64_t k, bool transpose_b) {
  constexpr std::int64_t all = 700;
  const Tensor a = random_tensor<T>({all, k}, 1);
  const Tensor b = random_tensor<T>(transpose_b ? Shape{n, k} : Shape{k, n}, 2);
  const Tensor whole = Tensor::empty({all, n}, DTypeOf<T>::value);
  kernels::gemm(MatrixView::of(a), MatrixView::of(b, transpose_b), MatrixView::of(whole));
  for (const std::int64_t rows : {1, 2, 8, 31, 64, 100, 256, 300, 512}) {
    const Tensor part = Tensor::empty({rows, n}, DTypeOf<T>::value);
    kernels::gemm(MatrixView::of(a.segment(0, {rows, k})), MatrixView::of(b, transpose_b), MatrixView::of(part));
    EXPECT_TRUE(same_bits(part, whole.segment(0, {rows, n}))) << rows << " rows, n " << n << ", k " << k;
  }
}

TEST(Gemm, RowsDoNotDependOnTheNumberOfRows) {
  for (const std::int64_t k : {64, 128, 768, 1536}) {
    for (const std::int64_t n : {64, 128, 320, 768}) {
      for (const bool transpose_b : {false, true}) expect_rows_independent<float>(n, k, transpose_b);
    }
  }
  expect_rows_independent<float>(1700, 128, true);
  expect_rows_independent<float>(3200, 64, true);
  expect_rows_independent<double>(65, 300, true);
}

TEST(Gemm, BatchesDoNotDependOnTheBatch) {
  const Tensor a = random_tensor<float>({40, 64, 32}, 1), b = random_tensor<float>({40, 64, 32}, 2);
  const Tensor whole = Tensor::empty({40, 64, 64}, DType::kF32);
  kernels::gemm(MatrixView::batched(a), MatrixView::batched(b, true), MatrixView::batched(whole));
  for (const std::int64_t item : {0, 7, 39}) {
    const Tensor one = Tensor::empty({1, 64, 64}, DType::kF32);
    kernels::gemm(MatrixView::batched(a.segment(item * 2048, {1, 64, 32})),
                  MatrixView::batched(b.segment(item * 2048, {1, 64, 32}), true), MatrixView::batched(one));
    EXPECT_TRUE(same_bits(one, whole.segment(item * 4096, {1, 64, 64}))) << item;
  }
}

TEST(Gemm, OnednnHasMoreThanReferenceLoops) {
  // What training uses must run in oneDNN's optimised code; gemm_onednn says false otherwise.
  const auto runs = [](cpu::GemmShape shape) {
    const std::vector<float> a(static_cast<std::size_t>(shape.batch * shape.m * shape.k), 1.0F);
    const std::vector<float> b(static_cast<std::size_t>(shape.batch * shape.n * shape.k), 1.0F);
    std::vector<float> c(static_cast<std::size_t>(shape.batch * shape.m * shape.n), 0.0F);
    shape.batch_stride_a = shape.batch > 1 ? shape.m * shape.k : 0;
    shape.batch_stride_b = shape.batch > 1 ? shape.n * shape.k : 0;
    shape.batch_stride_c = shape.batch > 1 ? shape.m * shape.n : 0;
    return cpu::gemm_onednn(shape, a.data(), b.data(), c.data());
  };
  EXPECT_TRUE(runs({1, 256, 320, 128, false, true, 128, 128, 320}));
  EXPECT_TRUE(runs({1, 256, 128, 320, false, false, 320, 128, 128}));
  EXPECT_TRUE(runs({1, 64, 128, 512, true, false, 64, 128, 128}));
  EXPECT_TRUE(runs({8, 64, 64, 32, false, true, 32, 32, 64}));
  EXPECT_TRUE(runs({8, 64, 96, 64, true, false, 64, 96, 96}));
  cpu::GemmShape scaled{1, 64, 64, 64, false, true, 64, 64, 64};
  scaled.alpha = 0.5;
  scaled.accumulate = true;
  EXPECT_TRUE(runs(scaled));
}

TEST(Gemm, GenericFloatEqualsDouble) {
  const Tensor a = random_tensor<float>({50, 70}, 1), b = random_tensor<float>({70, 45}, 2);
  std::vector<float> c(50 * 45, 1.0F);
  cpu::GemmShape shape{1, 50, 45, 70, false, false, 70, 45, 45};
  shape.accumulate = true;
  cpu::gemm_generic(shape, a.data<float>(), b.data<float>(), c.data());
  const Tensor ones = Tensor::from(std::vector<float>(50 * 45, 1.0F), {50, 45});
  const std::vector<double> expected = naive(MatrixView::of(a), MatrixView::of(b), MatrixView::of(ones), 1, true);
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], expected[i], 1e-5);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const Tensor a = Tensor::zeros({2, 3}, DType::kF32), b = Tensor::zeros({4, 5}, DType::kF32),
               c = Tensor::zeros({2, 5}, DType::kF32);
  try {
    kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(c));
    FAIL() << "a product of 2x3 and 4x5 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("[2, 3]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[4, 5]"), std::string::npos) << error.what();
  }
  const Tensor wide = Tensor::zeros({3, 5}, DType::kF64);
  EXPECT_THROW(kernels::gemm(MatrixView::of(a), MatrixView::of(wide), MatrixView::of(c)), Error);
  MatrixView beyond = MatrixView::of(Tensor::zeros({3, 5}, DType::kF32));
  beyond.offset = 1;
  EXPECT_THROW(kernels::gemm(MatrixView::of(a), beyond, MatrixView::of(c)), Error);
  EXPECT_THROW(MatrixView::batched(a), Error);
}

}  // namespace
}  // namespace gau
