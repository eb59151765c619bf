// Matrix products by blocked loops, for float and double.
//
// The classic scheme (Goto and van de Geijn, 2008): blocks of a and b are packed into strips that the innermost loops read in
// order; a tile of c stays in registers while k runs. oneDNN has no double precision on CPUs, and the gradient check in double
// is to run the same code around it as training; it also serves where oneDNN would use its reference loops.
// The sum over k of an element runs in blocks of kDepth, in order, whatever m and n are.
#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/cpu/gemm.h"

namespace gau::cpu {
namespace {

constexpr std::int64_t kDepth = 256;   // k of a packed block: a strip of b fits the first-level cache
constexpr std::int64_t kHeight = 96;   // rows of a packed block of a: fits the second level
constexpr std::int64_t kWidth = 1024;  // columns of a packed block of b: fits the third
constexpr std::int64_t kTileRows = 8;
constexpr std::size_t kVectorBytes = 64;
constexpr std::int64_t kTileVectors = 2;

template <class T>
struct Vector {
  typedef T Type __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
constexpr std::int64_t kTileCols = kTileVectors* static_cast<std::int64_t>(kVectorBytes / sizeof(T));

// Rows [row, row + rows) and columns [col, col + cols) of a matrix, in strips of `strip` rows: within a strip, column by
// column. Missing rows of the last strip are zeros. With `transposed`, (r, c) is stored at (c, r).
template <class T>
void pack(const T* matrix, std::int64_t stride, bool transposed, std::int64_t row, std::int64_t rows, std::int64_t col,
          std::int64_t cols, std::int64_t strip, T* packed) {
  for (std::int64_t first = 0; first < rows; first += strip) {
    const std::int64_t height = std::min(strip, rows - first);
    for (std::int64_t c = 0; c < cols; ++c, packed += strip) {
      const std::int64_t r0 = row + first;
      for (std::int64_t r = 0; r < height; ++r) {
        packed[r] = transposed ? matrix[(col + c) * stride + r0 + r] : matrix[(r0 + r) * stride + col + c];
      }
      std::fill(packed + height, packed + strip, T(0));
    }
  }
}

// tile = Σ_p a[p][·] ⊗ b[p][·] over a packed strip of each.
template <class T>
void multiply_tile(std::int64_t depth, const T* a, const T* b, T* tile) {
  using Pack = typename Vector<T>::Type;
  constexpr std::int64_t lanes = kTileCols<T> / kTileVectors;
  Pack sum[kTileRows][kTileVectors] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const Pack b0 = *reinterpret_cast<const Pack*>(b);
    const Pack b1 = *reinterpret_cast<const Pack*>(b + lanes);
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      sum[r][0] += a[r] * b0;
      sum[r][1] += a[r] * b1;
    }
    a += kTileRows;
    b += kTileCols<T>;
  }
  std::memcpy(tile, sum, sizeof(sum));
}

template <class T>
void store_tile(const T* tile, std::int64_t rows, std::int64_t cols, T alpha, bool accumulate, T* c, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const from = tile + r * kTileCols<T>;
    T* const to = c + r * stride;
    for (std::int64_t j = 0; j < cols; ++j) to[j] = (accumulate ? to[j] : T(0)) + alpha * from[j];
  }
}

template <class T>
struct Block {
  std::int64_t rows, cols, depth;
  const T* a;
  const T* b;
};

template <class T>
void multiply_block(const Block<T>& block, T alpha, bool accumulate, T* c, std::int64_t stride) {
  alignas(kVectorBytes) T tile[kTileRows * kTileCols<T>];
  for (std::int64_t j = 0; j < block.cols; j += kTileCols<T>) {
    for (std::int64_t i = 0; i < block.rows; i += kTileRows) {
      multiply_tile(block.depth, block.a + i * block.depth, block.b + j * block.depth, tile);
      store_tile(tile, std::min(kTileRows, block.rows - i), std::min(kTileCols<T>, block.cols - j), alpha, accumulate,
                 c + i * stride + j, stride);
    }
  }
}

template <class T>
void multiply_matrix(const GemmShape& shape, const T* a, const T* b, T* c) {
  thread_local std::vector<T> packed_a(kHeight * kDepth);
  thread_local std::vector<T> packed_b((kWidth + kTileCols<T>)*kDepth);
  for (std::int64_t j = 0; j < shape.n; j += kWidth) {
    const std::int64_t cols = std::min(kWidth, shape.n - j);
    for (std::int64_t p = 0; p < shape.k; p += kDepth) {
      const std::int64_t depth = std::min(kDepth, shape.k - p);
      // A strip of b holds kTileCols columns for each p, so b is packed as its transpose.
      pack(b, shape.row_stride_b, !shape.transpose_b, j, cols, p, depth, kTileCols<T>, packed_b.data());
      for (std::int64_t i = 0; i < shape.m; i += kHeight) {
        const std::int64_t rows = std::min(kHeight, shape.m - i);
        pack(a, shape.row_stride_a, shape.transpose_a, i, rows, p, depth, kTileRows, packed_a.data());
        multiply_block<T>({rows, cols, depth, packed_a.data(), packed_b.data()}, static_cast<T>(shape.alpha),
                          shape.accumulate || p > 0, c + i * shape.row_stride_c + j, shape.row_stride_c);
      }
    }
  }
}

}  // namespace

template <class T>
void gemm_generic(const GemmShape& shape, const T* a, const T* b, T* c) {
  for (std::int64_t item = 0; item < shape.batch; ++item) {
    multiply_matrix(shape, a + item * shape.batch_stride_a, b + item * shape.batch_stride_b, c + item * shape.batch_stride_c);
  }
}

template void gemm_generic(const GemmShape&, const float*, const float*, float*);
template void gemm_generic(const GemmShape&, const double*, const double*, double*);

}  // namespace gau::cpu
