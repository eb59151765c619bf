#include "train/machine_rates.h"

#include <algorithm>
#include <chrono>

#include "framework/kernels.h"
#include "framework/parallel.h"
#include "framework/tensor.h"

namespace gau {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

double measured_product_rate(DType dtype) {
  constexpr std::int64_t kSize = 768;
  Tensor a = Tensor::zeros({kSize, kSize}, dtype), b = Tensor::zeros({kSize, kSize}, dtype),
         c = Tensor::zeros({kSize, kSize}, dtype);
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto begin = Clock::now();
    kernels::gemm(MatrixView::of(a), MatrixView::of(b), MatrixView::of(c), 1.0, false);
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds_since(begin));
  }
  return best;
}

double measured_memory_rate() {
  constexpr std::int64_t kElements = 16 << 20, kBlock = 1 << 16;
  Tensor from = Tensor::zeros({kElements}, DType::kF32), to = Tensor::zeros({kElements}, DType::kF32);
  const float* const source = from.data<float>();
  float* const target = to.data<float>();
  double best = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto begin = Clock::now();
    parallel_for(kElements, kBlock,
                 [&](std::int64_t first, std::int64_t last) { std::copy(source + first, source + last, target + first); });
    best = std::max(best, 2.0 * sizeof(float) * kElements / seconds_since(begin));
  }
  return best;
}

}  // namespace gau
