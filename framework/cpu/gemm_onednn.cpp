// Matrix products in float32 by oneDNN (2.6 and 3.x): the only file that knows it.
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
#include "oneapi/dnnl/dnnl.hpp"

namespace gau::cpu {
namespace {

using dnnl::memory;

// Shapes vary with lengths and numbers of masked tokens; beyond this many the cache starts over.
constexpr std::size_t kCacheLimit = 4096;

struct Product {
  dnnl::matmul primitive;
  memory::desc a, b, c, scratch;
};

// Never destroyed: pool threads may still hold primitives when the process ends.
dnnl::engine& engine() {
  static dnnl::engine* const instance = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *instance;
}

memory::desc describe(std::int64_t batch, std::int64_t rows, std::int64_t cols, bool transposed, std::int64_t row_stride,
                      std::int64_t batch_stride) {
  const memory::dim stride_row = transposed ? 1 : row_stride;
  const memory::dim stride_col = transposed ? row_stride : 1;
  if (batch == 1) return {{rows, cols}, memory::data_type::f32, memory::dims{stride_row, stride_col}};
  return {{batch, rows, cols}, memory::data_type::f32, memory::dims{batch_stride, stride_row, stride_col}};
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

// The primitive, or nothing when oneDNN has only its reference loops.
std::shared_ptr<const Product> create(const GemmShape& shape) {
  const memory::desc a = describe(shape.batch, shape.m, shape.k, shape.transpose_a, shape.row_stride_a, shape.batch_stride_a);
  const memory::desc b = describe(shape.batch, shape.k, shape.n, shape.transpose_b, shape.row_stride_b, shape.batch_stride_b);
  const memory::desc c = describe(shape.batch, shape.m, shape.n, false, shape.row_stride_c, shape.batch_stride_c);
  try {
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine(), a, b, c, attributes(shape));
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes(shape), engine());
#endif
    if (std::string_view(description.impl_info_str()).starts_with("ref")) return nullptr;
    return std::make_shared<const Product>(Product{dnnl::matmul(description), a, b, c, description.scratchpad_desc()});
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw;
  }
}

struct HashShape {
  std::size_t operator()(const GemmShape& shape) const {
    std::size_t hash = 0;
    const auto mix = [&hash](auto value) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15 + (hash >> 29);
    };
    for (const std::int64_t value : {shape.batch, shape.m, shape.n, shape.k, shape.row_stride_a, shape.row_stride_b,
                                     shape.row_stride_c, shape.batch_stride_a, shape.batch_stride_b, shape.batch_stride_c}) {
      mix(value);
    }
    mix((shape.transpose_a ? 1 : 0) + (shape.transpose_b ? 2 : 0) + (shape.accumulate ? 4 : 0));
    return hash;
  }
};

class Cache {
 public:
  std::shared_ptr<const Product> find_or_create(const GemmShape& shape) {
    {
      const std::shared_lock lock(mutex_);
      const auto found = products_.find(shape);
      if (found != products_.end()) return found->second;
    }
    auto product = create(shape);
    const std::unique_lock lock(mutex_);
    if (products_.size() >= kCacheLimit) products_.clear();
    return products_.try_emplace(shape, std::move(product)).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<GemmShape, std::shared_ptr<const Product>, HashShape> products_;
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

void execute(const Product& product, const float* a, const float* b, float* c) {
  thread_local dnnl::stream stream(engine());
  // oneDNN's memory objects take pointers without const; operands are only read.
  const memory memory_a(product.a, engine(), const_cast<float*>(a));
  const memory memory_b(product.b, engine(), const_cast<float*>(b));
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

}  // namespace

bool gemm_onednn(const GemmShape& shape, const float* a, const float* b, float* c) {
  make_single_threaded();
  try {
    const std::shared_ptr<const Product> product = cache().find_or_create(shape);
    if (!product) return false;
    execute(*product, a, b, c);
    return true;
  } catch (const dnnl::error& error) {
    fail(ExitCode::kIo, "oneDNN failed on a product {} x [{}, {}] x [{}, {}]: {}", shape.batch, shape.m, shape.k, shape.k,
         shape.n, error.what());
  }
}

}  // namespace gau::cpu
