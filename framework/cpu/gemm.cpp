// Products of tensors: a product is cut into panels of rows whose size depends on the shape alone, and threads take panels.
//
// Why panels: each is one call on one thread, so bits do not depend on the number of threads; and a row's bits do not depend
// on how many other rows there are, so a sequence scores the same in any batch. The price is small: panels of 256 rows run
// within 1 % of the whole (128 rows: 6 %). Columns are never cut: a destination whose rows do not lie behind each other sends
// oneDNN to another implementation, slower by 3 %, in which a row's bits do depend on the number of rows.
#include "framework/cpu/gemm.h"

#include <algorithm>
#include <type_traits>

#include "framework/cpu/bfloat16.h"
#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/parallel.h"
#include "framework/product_log.h"
#include "framework/weights_scope.h"

namespace gau {
namespace cpu {
namespace {

template <class Operand>
constexpr std::int64_t kPanelRows = std::is_same_v<Operand, BFloat16> ? 512 : 256;
// Each panel packs b anew, which shorter ones do not repay; bf16 computes twice as fast but packs no faster.
template <class Operand>
constexpr std::int64_t kLeastRows = std::is_same_v<Operand, BFloat16> ? 512 : 128;
constexpr std::int64_t kLeastTransposedRows = 64;     // a stored-transposed a takes another path, as fast with 64
constexpr std::int64_t kPanelsWanted = 8;             // below that, threads would wait for each other
constexpr std::int64_t kPanelOperations = 4'000'000;  // multiplications that are worth a panel

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t value, std::int64_t unit) { return ceil_div(value, unit) * unit; }

struct Panels {
  std::int64_t batch, rows;
};

// Few rows still make two panels, of 32 at least.
template <class Operand>
Panels choose_panels(const GemmShape& shape) {
  const std::int64_t operations = std::max<std::int64_t>(shape.m * shape.n * shape.k, 1);
  Panels panels{std::clamp<std::int64_t>(kPanelOperations / operations, 1, shape.batch),
                std::min(kPanelRows<Operand>, shape.m)};
  const std::int64_t worth = std::min(kPanelsWanted, shape.batch * operations / kPanelOperations);
  const std::int64_t stacked = std::clamp<std::int64_t>(worth / ceil_div(shape.batch, panels.batch), 1, shape.m);
  if (ceil_div(shape.m, panels.rows) < stacked) {
    const std::int64_t half = round_up(ceil_div(shape.m, 2), 32);
    const std::int64_t least = std::min(half, shape.transpose_a ? kLeastTransposedRows : kLeastRows<Operand>);
    panels.rows = std::min(panels.rows, std::max(least, round_up(ceil_div(shape.m, stacked), 32)));
  }
  return panels;
}

// multiply(part, item, row) for every panel: the rows from `row` on of the matrices from `item` on.
template <class Operand, class Multiply>
void for_panels(const GemmShape& shape, const Multiply& multiply) {
  const Panels panels = choose_panels<Operand>(shape);
  const std::int64_t down = ceil_div(shape.m, panels.rows);
  const std::int64_t groups = ceil_div(shape.batch, panels.batch);
  parallel_for(groups * down, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t item = index / down * panels.batch;
      const std::int64_t row = index % down * panels.rows;
      GemmShape part = shape;
      part.batch = std::min(panels.batch, shape.batch - item);
      part.m = std::min(panels.rows, shape.m - row);
      multiply(part, item, row);
    }
  });
}

template <class Operand, class T>
void gemm_panels(const GemmShape& shape, const Operand* a, const Operand* b, T* c) {
  for_panels<Operand>(shape, [&](const GemmShape& part, std::int64_t item, std::int64_t row) {
    gemm(part, a + item * shape.batch_stride_a + row * (shape.transpose_a ? 1 : shape.row_stride_a),
         b + item * shape.batch_stride_b, c + item * shape.batch_stride_c + row * shape.row_stride_c);
  });
}

// Batches that lie behind each other and share b are one matrix with more rows.
void fold_batch(GemmShape& shape) {
  const bool shared_b = shape.batch_stride_b == 0 && !shape.transpose_a;
  const bool adjacent =
      shape.batch_stride_a == shape.m * shape.row_stride_a && shape.batch_stride_c == shape.m * shape.row_stride_c;
  if (shape.batch > 1 && shared_b && adjacent) {
    shape.m *= shape.batch;
    shape.batch = 1;
  }
}

GemmShape shape_of(const MatrixView& a, const MatrixView& b, const MatrixView& c) {
  GemmShape shape;
  shape.batch = c.batch;
  shape.m = c.rows;
  shape.n = c.cols;
  shape.k = a.cols;
  shape.transpose_a = a.transposed;
  shape.transpose_b = b.transposed;
  shape.row_stride_a = a.row_stride;
  shape.row_stride_b = b.row_stride;
  shape.row_stride_c = c.row_stride;
  shape.batch_stride_a = a.batch == 1 ? 0 : a.batch_stride;
  shape.batch_stride_b = b.batch == 1 ? 0 : b.batch_stride;
  shape.batch_stride_c = c.batch == 1 ? 0 : c.batch_stride;
  return shape;
}

template <class T>
void clear(const GemmShape& shape, T* c) {
  for (std::int64_t item = 0; item < shape.batch; ++item) {
    for (std::int64_t row = 0; row < shape.m; ++row) {
      T* const first = c + item * shape.batch_stride_c + row * shape.row_stride_c;
      std::fill(first, first + shape.n, T(0));
    }
  }
}

// oneDNN reads a batch as one primitive only when every operand has one.
bool has_shared_operand(const GemmShape& shape) {
  return shape.batch > 1 && (shape.batch_stride_a == 0 || shape.batch_stride_b == 0);
}

}  // namespace

void gemm(const GemmShape& shape, const double* a, const double* b, double* c) {
  if (shape.k == 0 && !shape.accumulate) return clear(shape, c);
  gemm_generic(shape, a, b, c);
}

namespace {

template <class Operand>
void gemm_by_library(const GemmShape& shape, const Operand* a, const Operand* b, float* c) {
  if (shape.batch == 0 || shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) return shape.accumulate ? void() : clear(shape, c);
  if (has_shared_operand(shape)) {
    GemmShape single = shape;
    single.batch = 1;
    for (std::int64_t item = 0; item < shape.batch; ++item) {
      gemm_by_library(single, a + item * shape.batch_stride_a, b + item * shape.batch_stride_b,
                      c + item * shape.batch_stride_c);
    }
    return;
  }
  GemmShape key = shape;
  if (key.batch == 1) key.batch_stride_a = key.batch_stride_b = key.batch_stride_c = 0;
  if (gemm_onednn(key, a, b, c)) return;
  if constexpr (std::is_same_v<Operand, float>) {
    gemm_generic(shape, a, b, c);
  } else {
    fail(ExitCode::kIo, "oneDNN has no fast bf16 product {} x [{}, {}] x [{}, {}]; use dtype f32", shape.batch, shape.m,
         shape.k, shape.k, shape.n);
  }
}

// The matrices of a view, rounded to bf16 and packed one after another.
Tensor rounded_to_bf16(const MatrixView& view) {
  const std::int64_t rows = view.transposed ? view.cols : view.rows;
  const std::int64_t cols = view.transposed ? view.rows : view.cols;
  Tensor packed = Tensor::empty({view.batch, rows, cols}, DType::kBF16);
  const float* const from = view.tensor.data<float>() + view.offset;
  BFloat16* const to = packed.data<BFloat16>();
  parallel_for(view.batch * rows, rows_per_block(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* source = from + row / rows * view.batch_stride + row % rows * view.row_stride;
      BFloat16* target = to + row * cols;
#pragma omp simd
      for (std::int64_t i = 0; i < cols; ++i) target[i] = to_bfloat16(source[i]);
    }
  });
  return packed;
}

// A view as products of this type read it: as it lies where it was rounded before, else rounded and packed. A machine without
// bf16 products gets the same numbers from float ones.
template <class Operand>
MatrixView as_operand(const MatrixView& view) {
  MatrixView operand = view;
  if (view.tensor.dtype() == DType::kBF16) {
    operand.tensor = view.tensor.to(DTypeOf<Operand>::value);
    return operand;
  }
  operand.tensor = rounded_to_bf16(view).to(DTypeOf<Operand>::value);
  operand.offset = 0;
  operand.row_stride = operand.tensor.dim(2);
  operand.batch_stride = operand.tensor.dim(1) * operand.tensor.dim(2);
  return operand;
}

// The copy of b that products by it keep while weights stay as they are; null where b is none of them or oneDNN cannot.
template <class Operand>
std::shared_ptr<const PackedMatrix> kept_weights(const GemmShape& shape, const MatrixView& b, DType product_type) {
  const bool suits = shape.batch == 1 && !shape.transpose_a && b.tensor.dtype() == DType::kF32;
  WeightsScope* const scope = suits ? WeightsScope::of(b.tensor) : nullptr;
  if (!scope) return nullptr;
  const float* const first = b.tensor.data<float>() + b.offset;
  std::shared_ptr<const void>& kept = scope->kept({first, b.rows, b.cols, b.row_stride, b.transposed, product_type});
  if (!kept && product_type == DType::kF32) {
    kept = pack_onednn(shape, first);
  } else if (!kept) {
    const MatrixView copy = as_operand<Operand>(b);
    GemmShape dense = shape;
    dense.row_stride_b = copy.row_stride;
    kept = pack_onednn(dense, copy.tensor.data<Operand>());
  }
  return std::static_pointer_cast<const PackedMatrix>(kept);
}

// False, and nothing done, unless b is among the weights that stay as they are and oneDNN takes panels of every height by it.
template <class Operand>
bool gemm_by_weights(const GemmShape& shape, const Operand* a, const MatrixView& b, DType product_type, float* c) {
  const auto packed = kept_weights<Operand>(shape, b, product_type);
  if (!packed) return false;
  const std::int64_t rows = choose_panels<Operand>(shape).rows;
  GemmShape part = shape;
  for (const std::int64_t height : {rows, shape.m % rows}) {
    part.m = height;
    if (height > 0 && !multiplies(part, *packed, DTypeOf<Operand>::value)) return false;
  }
  for_panels<Operand>(shape, [&](const GemmShape& panel, std::int64_t, std::int64_t row) {
    gemm_onednn(panel, a + row * shape.row_stride_a, *packed, c + row * shape.row_stride_c);
  });
  return true;
}

template <class Operand>
void gemm_rounded(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) {
  const MatrixView left = as_operand<Operand>(a);
  const auto shape_with = [&](const MatrixView& right) {
    GemmShape shape = shape_of(left, right, c);
    shape.alpha = static_cast<float>(alpha);
    shape.accumulate = accumulate;
    fold_batch(shape);
    return shape;
  };
  Tensor out = c.tensor;
  const Operand* const from = left.tensor.data<Operand>() + left.offset;
  float* const to = out.data<float>() + c.offset;
  if (gemm_by_weights(shape_with(b), from, b, DType::kBF16, to)) return;
  const MatrixView right = as_operand<Operand>(b);
  gemm_panels(shape_with(right), from, right.tensor.data<Operand>() + right.offset, to);
}

// Products of float32 operands while products are to be in bf16, and of operands that were rounded before.
bool is_rounded(const MatrixView& a, const MatrixView& b, const MatrixView& c, DType product_type) {
  if (a.tensor.dtype() == DType::kBF16 || b.tensor.dtype() == DType::kBF16) return true;
  return product_type == DType::kBF16 && c.tensor.dtype() == DType::kF32;
}

}  // namespace

void gemm(const GemmShape& shape, const float* a, const float* b, float* c) { gemm_by_library(shape, a, b, c); }
void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c) { gemm_by_library(shape, a, b, c); }

}  // namespace cpu

void CpuBackend::gemm(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) {
  if (c.transposed) {
    // A transposed destination would be oneDNN's slowest case: cᵀ = bᵀ aᵀ has a plain one.
    const auto flip = [](MatrixView view) {
      std::swap(view.rows, view.cols);
      view.transposed = !view.transposed;
      return view;
    };
    return gemm(flip(b), flip(a), flip(c), alpha, accumulate);
  }
  ProductLog::note(a, b, c, alpha, accumulate);
  cpu::GemmShape shape = cpu::shape_of(a, b, c);
  shape.alpha = alpha;
  shape.accumulate = accumulate;
  if (shape.batch == 0 || shape.m == 0 || shape.n == 0) return;
  if (shape.k > 0 && cpu::is_rounded(a, b, c, product_type_)) {
    return cpu::has_native_bf16() ? cpu::gemm_rounded<BFloat16>(a, b, c, alpha, accumulate)
                                  : cpu::gemm_rounded<float>(a, b, c, alpha, accumulate);
  }
  cpu::fold_batch(shape);
  cpu::dispatch(c.tensor.dtype(), "gemm", [&](auto zero) {
    using T = decltype(zero);
    Tensor out = c.tensor;
    if constexpr (std::is_same_v<T, float>) {
      if (shape.k > 0 && cpu::gemm_by_weights(shape, a.tensor.data<T>() + a.offset, b, DType::kF32, out.data<T>() + c.offset))
        return;
    }
    cpu::gemm_panels(shape, a.tensor.data<T>() + a.offset, b.tensor.data<T>() + b.offset, out.data<T>() + c.offset);
  });
}

}  // namespace gau
