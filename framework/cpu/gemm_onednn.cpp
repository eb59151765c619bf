// Matrix products of float32 or bfloat16 operands by oneDNN (2.6 and 3.x): the only file that knows it.
//
// Every primitive is made for one thread, and threads share a product by panels (gemm.cpp): oneDNN may split sums differently
// for another number of threads, panels do not. oneDNN falls back to reference loops, a thousand times slower, without a word
// (for a transposed destination, for some broadcasts): such an implementation is refused and the caller's own loops serve.
#include <omp.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "framework/cpu/gemm.h"
#include "framework/error.h"
#include "framework/tensor.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace gau::cpu {

using dnnl::memory;

struct PackedMatrix {
  memory::desc layout;
  Tensor data;
};

namespace {

// Shapes vary with lengths and numbers of masked tokens; beyond this many the cache starts over.
constexpr std::size_t kCacheLimit = 4096;

// A packed b has one layout for each k and n: nothing else of it is in the shape.
struct ProductKey {
  GemmShape shape;
  bool bf16 = false;
  bool packed = false;
  bool operator==(const ProductKey&) const = default;
};

struct Product {
  dnnl::matmul primitive;
  memory::desc a, b, c, scratch;
};

// Never destroyed: pool threads may still hold primitives when the process ends.
dnnl::engine& engine() {
  static dnnl::engine* const instance = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *instance;
}

memory::desc describe(memory::data_type type, std::int64_t batch, std::int64_t rows, std::int64_t cols, bool transposed,
                      std::int64_t row_stride, std::int64_t batch_stride) {
  const memory::dim stride_row = transposed ? 1 : row_stride;
  const memory::dim stride_col = transposed ? row_stride : 1;
  if (batch == 1) return {{rows, cols}, type, memory::dims{stride_row, stride_col}};
  return {{batch, rows, cols}, type, memory::dims{batch_stride, stride_row, stride_col}};
}

dnnl::primitive_attr attributes(const GemmShape& shape) {
  dnnl::post_ops operations;
  const auto alpha = static_cast<float>(shape.alpha);
#if DNNL_VERSION_MAJOR >= 3
  if (alpha != 1) operations.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0);
#else
  if (alpha != 1) operations.append_eltwise(1, dnnl::algorithm::eltwise_linear, alpha, 0);
#endif
  if (shape.accumulate) operations.append_sum(1);
  dnnl::primitive_attr attr;
  attr.set_post_ops(operations);
  // Scratch memory of the caller's: a primitive then runs on any number of threads at once.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

memory::data_type operand_type(bool bf16) { return bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

memory::desc describe_b(const ProductKey& key) {
  const GemmShape& shape = key.shape;
  return describe(operand_type(key.bf16), shape.batch, shape.k, shape.n, shape.transpose_b, shape.row_stride_b,
                  shape.batch_stride_b);
}

// The primitive for a layout of b, or nothing when oneDNN has only its reference loops.
std::shared_ptr<const Product> create(const ProductKey& key, const memory::desc& b) {
  const GemmShape& shape = key.shape;
  const memory::desc a = describe(operand_type(key.bf16), shape.batch, shape.m, shape.k, shape.transpose_a, shape.row_stride_a,
                                  shape.batch_stride_a);
  const memory::desc c =
      describe(memory::data_type::f32, shape.batch, shape.m, shape.n, false, shape.row_stride_c, shape.batch_stride_c);
  try {
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine(), a, b, c, attributes(shape));
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes(shape), engine());
#endif
    if (std::string_view(description.impl_info_str()).starts_with("ref")) return nullptr;
    return std::make_shared<const Product>(
        Product{dnnl::matmul(description), a, description.weights_desc(), c, description.scratchpad_desc()});
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw;
  }
}

struct HashKey {
  std::size_t operator()(const ProductKey& key) const {
    const GemmShape& shape = key.shape;
    std::size_t hash = 0;
    const auto mix = [&hash](auto value) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15 + (hash >> 29);
    };
    for (const std::int64_t value : {shape.batch, shape.m, shape.n, shape.k, shape.row_stride_a, shape.row_stride_b,
                                     shape.row_stride_c, shape.batch_stride_a, shape.batch_stride_b, shape.batch_stride_c}) {
      mix(value);
    }
    mix((shape.transpose_a ? 1 : 0) + (shape.transpose_b ? 2 : 0) + (shape.accumulate ? 4 : 0) + (key.bf16 ? 8 : 0) +
        (key.packed ? 16 : 0));
    return hash;
  }
};

class Cache {
 public:
  std::shared_ptr<const Product> find_or_create(const ProductKey& key, const memory::desc& b) {
    {
      const std::shared_lock lock(mutex_);
      const auto found = products_.find(key);
      if (found != products_.end()) return found->second;
    }
    auto product = create(key, b);
    const std::unique_lock lock(mutex_);
    if (products_.size() >= kCacheLimit) products_.clear();
    return products_.try_emplace(key, std::move(product)).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<ProductKey, std::shared_ptr<const Product>, HashKey> products_;
};

Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

struct FreeBlock {
  void operator()(void* block) const { std::free(block); }
};

void* thread_scratch(std::size_t bytes) {
  thread_local std::unique_ptr<void, FreeBlock> block;
  thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
    block.reset(std::aligned_alloc(4096, rounded));
    if (block == nullptr) throw std::bad_alloc();
    capacity = rounded;
  }
  return block.get();
}

void execute(const Product& product, const void* a, const void* b, float* c) {
  thread_local dnnl::stream stream(engine());
  // oneDNN's memory objects take pointers without const; operands are only read.
  const memory memory_a(product.a, engine(), const_cast<void*>(a));
  const memory memory_b(product.b, engine(), const_cast<void*>(b));
  const memory memory_c(product.c, engine(), c);
  const memory scratch(product.scratch, engine(), thread_scratch(product.scratch.get_size()));
  product.primitive.execute(
      stream,
      {{DNNL_ARG_SRC, memory_a}, {DNNL_ARG_WEIGHTS, memory_b}, {DNNL_ARG_DST, memory_c}, {DNNL_ARG_SCRATCHPAD, scratch}});
  stream.wait();
}

// oneDNN plans and runs for as many threads as OpenMP would use: one, in every thread that calls it. Nothing else here uses
// OpenMP.
void make_single_threaded() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

[[noreturn]] void fail_on(const GemmShape& shape, const dnnl::error& error) {
  fail(ExitCode::kIo, "oneDNN failed on a product {} x [{}, {}] x [{}, {}]: {}", shape.batch, shape.m, shape.k, shape.k,
       shape.n, error.what());
}

bool run(const ProductKey& key, const memory::desc& layout, const void* a, const void* b, float* c) {
  make_single_threaded();
  try {
    const std::shared_ptr<const Product> product = cache().find_or_create(key, layout);
    if (!product) return false;
    execute(*product, a, b, c);
    return true;
  } catch (const dnnl::error& error) {
    fail_on(key.shape, error);
  }
}

bool run(const ProductKey& key, const void* a, const void* b, float* c) { return run(key, describe_b(key), a, b, c); }

ProductKey packed_key(const GemmShape& shape, bool bf16) {
  ProductKey key{shape, bf16, true};
  key.shape.transpose_b = false;
  key.shape.row_stride_b = 0;
  return key;
}

// The layout is the one that oneDNN chooses for this many rows, for products of any number of them: a row's bits are then the
// same in all.
constexpr std::int64_t kTypicalRows = 512;

std::shared_ptr<const PackedMatrix> pack(const GemmShape& shape, bool bf16, const void* b) {
  make_single_threaded();
  GemmShape typical;
  typical.m = kTypicalRows;
  typical.n = typical.row_stride_c = shape.n;
  typical.k = typical.row_stride_a = shape.k;
  typical.transpose_b = shape.transpose_b;
  typical.row_stride_b = shape.row_stride_b;
  try {
    const memory::desc open({shape.k, shape.n}, operand_type(bf16), memory::format_tag::any);
    const std::shared_ptr<const Product> product = cache().find_or_create(packed_key(typical, bf16), open);
    if (!product) return nullptr;
    auto packed = std::make_shared<PackedMatrix>();
    packed->layout = product->b;
    const std::size_t bytes = product->b.get_size();
    packed->data = Tensor::empty({static_cast<std::int64_t>((bytes + 3) / 4)}, DType::kF32);
    memory from(describe_b({typical, bf16}), engine(), const_cast<void*>(b));
    memory to(packed->layout, engine(), packed->data.raw());
    dnnl::stream stream(engine());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return packed;
  } catch (const dnnl::error& error) {
    fail_on(typical, error);
  }
}

}  // namespace

bool gemm_onednn(const GemmShape& shape, const float* a, const float* b, float* c) { return run({shape, false}, a, b, c); }
bool gemm_onednn(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c) { return run({shape, true}, a, b, c); }

std::shared_ptr<const PackedMatrix> pack_onednn(const GemmShape& shape, const float* b) { return pack(shape, false, b); }
std::shared_ptr<const PackedMatrix> pack_onednn(const GemmShape& shape, const BFloat16* b) { return pack(shape, true, b); }

bool gemm_onednn(const GemmShape& shape, const float* a, const PackedMatrix& b, float* c) {
  return run(packed_key(shape, false), b.layout, a, b.data.raw(), c);
}
bool gemm_onednn(const GemmShape& shape, const BFloat16* a, const PackedMatrix& b, float* c) {
  return run(packed_key(shape, true), b.layout, a, b.data.raw(), c);
}

bool multiplies(const GemmShape& shape, const PackedMatrix& b, DType type) {
  make_single_threaded();
  try {
    return cache().find_or_create(packed_key(shape, type == DType::kBF16), b.layout) != nullptr;
  } catch (const dnnl::error& error) {
    fail_on(shape, error);
  }
}

bool has_native_bf16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
#if DNNL_VERSION_MAJOR >= 3
    case dnnl::cpu_isa::avx512_core_fp16:
    case dnnl::cpu_isa::avx512_core_amx:
    case dnnl::cpu_isa::avx512_core_amx_fp16:
#else
    case dnnl::cpu_isa::avx512_core_amx:
#endif
      return true;
    default:
      return false;
  }
}

}  // namespace gau::cpu
