// Products of operands rounded to bf16: what they are, and what they leave alone.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/parallel.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

Tensor rounded(const Tensor& x) { return x.to(DType::kBF16).to(DType::kF32); }

Tensor product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, DType type, bool accumulate = false) {
  const ProductTypeScope scope(backend(), type);
  const MatrixView left = MatrixView::of(a, transpose_a), right = MatrixView::of(b, transpose_b);
  Tensor c = Tensor::empty({left.rows, right.cols}, a.dtype());
  kernels::fill(c, 0.5);
  kernels::gemm(left, right, MatrixView::of(c), 1.5, accumulate);
  return c;
}

TEST(Bf16, ProductsAreThoseOfRoundedOperands) {
  const std::int64_t m = 70, n = 90, k = 130;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const Tensor a = test::random_tensor<float>(transpose_a ? Shape{k, m} : Shape{m, k}, 1);
        const Tensor b = test::random_tensor<float>(transpose_b ? Shape{n, k} : Shape{k, n}, 2);
        const Tensor got = product(a, transpose_a, b, transpose_b, DType::kBF16, accumulate);
        const Tensor wanted =
            product(rounded(a).to(DType::kF64), transpose_a, rounded(b).to(DType::kF64), transpose_b, DType::kF32, accumulate);
        const Tensor plain = product(a, transpose_a, b, transpose_b, DType::kF32, accumulate);
        double most = 0, from_plain = 0;
        for (std::int64_t i = 0; i < got.size(); ++i) {
          most = std::max(most, std::abs(got.at(i) - wanted.at(i)));
          from_plain = std::max(from_plain, std::abs(got.at(i) - plain.at(i)));
        }
        EXPECT_LE(most, 2e-5);        // float32 sums of 130 products
        EXPECT_GT(from_plain, 1e-3);  // the rounding of the operands shows
      }
    }
  }
}

TEST(Bf16, DoubleIsNeverTouched) {
  const Tensor a = test::random_tensor<double>({20, 30}, 1), b = test::random_tensor<double>({30, 10}, 2);
  const Tensor with = product(a, false, b, false, DType::kBF16), without = product(a, false, b, false, DType::kF32);
  for (std::int64_t i = 0; i < with.size(); ++i) ASSERT_EQ(with.at(i), without.at(i));
}

TEST(Bf16, BatchesWithStridesAndASharedOperand) {
  const Tensor a = test::random_tensor<float>({3, 40, 24}, 1), b = test::random_tensor<float>({24, 33}, 2);
  Tensor c = Tensor::empty({3, 40, 33}, DType::kF32);
  const ProductTypeScope scope(backend(), DType::kBF16);
  kernels::gemm(MatrixView::batched(a), MatrixView::of(b), MatrixView::batched(c));
  const Tensor ra = rounded(a), rb = rounded(b);
  for (std::int64_t item = 0; item < 3; ++item) {
    for (std::int64_t r = 0; r < 40; ++r) {
      for (std::int64_t col = 0; col < 33; ++col) {
        double sum = 0;
        for (std::int64_t i = 0; i < 24; ++i) sum += ra.at((item * 40 + r) * 24 + i) * rb.at(i * 33 + col);
        ASSERT_NEAR(c.at((item * 40 + r) * 33 + col), sum, 1e-5);
      }
    }
  }
}

TEST(Bf16, SameBitsForAnyNumberOfThreads) {
  const int before = threads();
  const Tensor a = test::random_tensor<float>({4096, 128}, 1), b = test::random_tensor<float>({4096, 320}, 2);
  set_threads(1);
  const Tensor one = product(a, true, b, false, DType::kBF16);
  for (const int count : {2, 4}) {
    set_threads(count);
    const Tensor many = product(a, true, b, false, DType::kBF16);
    for (std::int64_t i = 0; i < one.size(); ++i) ASSERT_EQ(one.data<float>()[i], many.data<float>()[i]) << count;
  }
  set_threads(before);
}

// An operand that several products share may be rounded before.
TEST(Bf16, OperandsRoundedBeforeGiveTheSameBits) {
  const Tensor a = test::random_tensor<float>({3, 40, 24}, 1), b = test::random_tensor<float>({3, 24, 33}, 2);
  const auto run = [&](const Tensor& left, const Tensor& right, DType type) {
    const ProductTypeScope scope(backend(), type);
    Tensor c = Tensor::empty({3, 40, 33}, DType::kF32);
    kernels::gemm(MatrixView::batched(left), MatrixView::batched(right), MatrixView::batched(c));
    return c;
  };
  const Tensor expected = run(a, b, DType::kBF16), ra = a.to(DType::kBF16), rb = b.to(DType::kBF16);
  EXPECT_TRUE(test::same_bits(run(ra, b, DType::kBF16), expected));
  EXPECT_TRUE(test::same_bits(run(a, rb, DType::kBF16), expected));
  EXPECT_TRUE(test::same_bits(run(ra, rb, DType::kF32), expected));
  EXPECT_FALSE(test::same_bits(run(a, b, DType::kF32), expected));
  // A part of it, as it lies.
  const Tensor whole = run(ra, rb, DType::kBF16);
  Tensor part = Tensor::empty({10, 7}, DType::kF32);
  kernels::gemm({ra, 10, 24, 24, false, 40 * 24 + 5 * 24}, {rb, 24, 7, 33, false, 24 * 33 + 3}, MatrixView::of(part));
  for (std::int64_t r = 0; r < 10; ++r) {
    for (std::int64_t col = 0; col < 7; ++col) ASSERT_NEAR(part.at(r * 7 + col), whole.at((40 + 5 + r) * 33 + 3 + col), 1e-5);
  }
  Tensor rounded_sum = Tensor::empty({3, 40, 33}, DType::kBF16);
  EXPECT_THROW(kernels::gemm(MatrixView::batched(ra), MatrixView::batched(rb), MatrixView::batched(rounded_sum)), Error);
}

}  // namespace
}  // namespace gau
