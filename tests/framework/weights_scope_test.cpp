// Products by weights that stay as they are: the same bits as without kept copies, and copies of nothing else.
#include "framework/weights_scope.h"

#include <gtest/gtest.h>

#include <thread>

#include "framework/backend.h"
#include "framework/error.h"
#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_thread_invariant;
using test::random_tensor;
using test::same_bits;

constexpr std::int64_t kOffset = 37;  // of the matrix in the weights

struct Weights {
  std::int64_t n, k;
  bool transposed;
  Tensor flat = random_tensor<float>({kOffset + n * k + 5}, 1);

  MatrixView view() const { return MatrixView::of(flat.segment(kOffset, transposed ? Shape{n, k} : Shape{k, n}), transposed); }
  Tensor times(const Tensor& x, double alpha = 1, bool accumulate = false) const {
    Tensor y = Tensor::empty({x.rows(), n}, DType::kF32);
    kernels::fill(y, 0.25);
    kernels::gemm(MatrixView::of(x), view(), MatrixView::of(y), alpha, accumulate);
    return y;
  }
};

void expect_same_bits(const Weights& weights, DType type) {
  SCOPED_TRACE(fmt::format("n {}, k {}, transposed {}, {}", weights.n, weights.k, weights.transposed, name_of(type)));
  const ProductTypeScope products(backend(), type);
  const Tensor x = random_tensor<float>({600, weights.k}, 2);
  const WeightsScope scope(weights.flat);
  const Tensor whole = weights.times(x);
  for (const std::int64_t rows : {1, 2, 8, 31, 64, 100, 256, 300, 512, 600}) {
    const Tensor some = x.segment(0, {rows, weights.k});
    const Tensor kept = weights.times(some), scaled = weights.times(some, 0.5, true);
    Tensor plain, plain_scaled;
    std::thread([&] {  // has no scope
      plain = weights.times(some);
      plain_scaled = weights.times(some, 0.5, true);
    })
        .join();
    EXPECT_TRUE(same_bits(kept, plain)) << rows << " rows";
    EXPECT_TRUE(same_bits(scaled, plain_scaled)) << rows << " rows, scaled and added";
    if (type == DType::kBF16) continue;
    EXPECT_TRUE(same_bits(kept, whole.segment(0, {rows, weights.n}))) << rows << " of 600 rows";
  }
}

TEST(WeightsScope, KeptCopiesGiveTheSameBits) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const bool transposed : {false, true}) {
      expect_same_bits({1, 1, transposed}, type);
      expect_same_bits({65, 17, transposed}, type);
      expect_same_bits({200, 130, transposed}, type);
      expect_same_bits({64, 1100, transposed}, type);
    }
  }
}

TEST(WeightsScope, SameBitsForAnyNumberOfThreads) {
  const Weights weights{320, 128, true};
  const Tensor x = random_tensor<float>({1000, 128}, 2);
  const WeightsScope scope(weights.flat);
  expect_thread_invariant("gemm", [&] { return std::vector<Tensor>{weights.times(x)}; });
}

TEST(WeightsScope, BatchesShareACopy) {
  const Weights weights{40, 24, true};
  const Tensor x = random_tensor<float>({3, 20, 24}, 2);
  Tensor kept = Tensor::empty({3, 20, 40}, DType::kF32);
  {
    const WeightsScope scope(weights.flat);
    kernels::gemm(MatrixView::batched(x), weights.view(), MatrixView::batched(kept));
  }
  EXPECT_TRUE(same_bits(kept.reshaped({60, 40}), weights.times(x.reshaped({60, 24}))));
}

// What the scope promises is what products rely on: a weight written meanwhile goes unseen, and is seen when the scope is over.
TEST(WeightsScope, CopiesLiveAsLongAsTheScope) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const ProductTypeScope products(backend(), type);
    const Weights weights{64, 64, true};
    const Tensor x = random_tensor<float>({20, 64}, 2);
    const Tensor before = weights.times(x);
    {
      const WeightsScope scope(weights.flat);
      EXPECT_TRUE(same_bits(weights.times(x), before));
      kernels::scale(weights.flat, 2, weights.flat);
      EXPECT_TRUE(same_bits(weights.times(x), before)) << "no copy was kept";
    }
    Tensor doubled = Tensor::empty(before.shape(), DType::kF32);
    kernels::scale(before, 2, doubled);
    EXPECT_TRUE(same_bits(weights.times(x), doubled));
    const WeightsScope next(weights.flat);
    EXPECT_TRUE(same_bits(weights.times(x), doubled));
  }
}

TEST(WeightsScope, NothingElseIsKept) {
  const Weights inside{64, 64, true}, outside{64, 64, true};
  const Tensor x = random_tensor<float>({20, 64}, 2), before = outside.times(x);
  const WeightsScope scope(inside.flat);
  EXPECT_EQ(WeightsScope::of(outside.flat), nullptr);
  EXPECT_EQ(WeightsScope::of(inside.flat.segment(3, {5})), &scope);
  outside.times(x);
  kernels::scale(outside.flat, 2, outside.flat);
  EXPECT_FALSE(same_bits(outside.times(x), before));
  {
    const WeightsScope inner(outside.flat);
    EXPECT_EQ(WeightsScope::of(outside.flat), &inner);
    EXPECT_EQ(WeightsScope::of(inside.flat), &scope);
  }
  EXPECT_EQ(WeightsScope::of(outside.flat), nullptr);
}

// One matrix under two types, transposed or not, and in part, are different copies.
TEST(WeightsScope, EveryViewHasItsOwnCopy) {
  const Tensor flat = random_tensor<float>({64 * 64}, 1), x = random_tensor<float>({20, 64}, 2);
  const Tensor square = flat.reshaped({64, 64});
  const auto results = [&] {
    std::vector<Tensor> all;
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const ProductTypeScope products(backend(), type);
      for (const MatrixView& view :
           {MatrixView::of(square), MatrixView::of(square, true), MatrixView::of(flat.segment(0, {64, 32})),
            MatrixView::of(flat.segment(0, {32, 64}), true), MatrixView{square, 64, 32, 64}}) {
        all.push_back(Tensor::empty({20, view.cols}, DType::kF32));
        kernels::gemm(MatrixView::of(x), view, MatrixView::of(all.back()));
      }
    }
    return all;
  };
  const std::vector<Tensor> plain = results();
  const WeightsScope scope(flat);
  const std::vector<Tensor> kept = results();
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(kept[i], plain[i])) << i;
}

}  // namespace
}  // namespace gau
