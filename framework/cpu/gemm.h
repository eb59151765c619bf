// Matrix products on plain pointers, one thread a call: what the backend's gemm shares out among threads, and what kernels
// that run inside a parallel loop call themselves.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/dtype.h"

namespace gau::cpu {

/// c = alpha · a b (+ c), `batch` times. a is m × k, b is k × n, c is m × n, all row-major with the given strides between rows;
/// a transposed operand is stored as its transpose (a as k × m, b as n × k).
struct GemmShape {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t row_stride_a = 0;
  std::int64_t row_stride_b = 0;
  std::int64_t row_stride_c = 0;
  std::int64_t batch_stride_a = 0;
  std::int64_t batch_stride_b = 0;
  std::int64_t batch_stride_c = 0;
  double alpha = 1;
  bool accumulate = false;

  bool operator==(const GemmShape&) const = default;
};

/// Runs on the calling thread; may be called from many at once. Same shape, same bits. In float32 a row's bits do not depend
/// on m either, as long as the rows of c lie behind each other (row_stride_c = n; tests/framework/gemm_test.cpp).
void gemm(const GemmShape& shape, const float* a, const float* b, float* c);
void gemm(const GemmShape& shape, const double* a, const double* b, double* c);

/// Operands in bfloat16, sums and result in float32; needs has_native_bf16().
void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c);
/// Whether this machine multiplies bfloat16 itself; emulated products would be slower than float32.
bool has_native_bf16();

/// The product in float32 by oneDNN; false when oneDNN has nothing but its reference loops for the shape.
bool gemm_onednn(const GemmShape& shape, const float* a, const float* b, float* c);
bool gemm_onednn(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c);

/// A copy of b in the layout that oneDNN reads fastest, for many products by the same b.
struct PackedMatrix;
/// Packs the b of `shape` (k, n, transpose_b and row_stride_b count); null where oneDNN has nothing but its reference loops.
std::shared_ptr<const PackedMatrix> pack_onednn(const GemmShape& shape, const float* b);
std::shared_ptr<const PackedMatrix> pack_onednn(const GemmShape& shape, const BFloat16* b);
/// Whether oneDNN multiplies by the packed b (of type `type`) with more than its reference loops; without batches.
bool multiplies(const GemmShape& shape, const PackedMatrix& b, DType type);
/// The product with a packed b, as above.
bool gemm_onednn(const GemmShape& shape, const float* a, const PackedMatrix& b, float* c);
bool gemm_onednn(const GemmShape& shape, const BFloat16* a, const PackedMatrix& b, float* c);

/// The product by our own blocked loops, for float and double.
template <class T>
void gemm_generic(const GemmShape& shape, const T* a, const T* b, T* c);

}  // namespace gau::cpu
