// Attention of the CPU backend: blocks of query rows, whole rows of logits at a time.
//
// For each block: logits by one product per region, softmax row by row, weights · v by another product. The backward pass
// computes the weights again, from log_sum_exp, instead of keeping them. With A the weights, M the dropout factors and O the
// output,
//   dA = M ⊙ (dO Vᵀ),  dS = A ⊙ (dA - rowsum(dO ⊙ O)),  dV += (A ⊙ M)ᵀ dO,  dQ = dS K,  dK += dSᵀ Q.
// Keys whose weight float32 cannot notice are left out of the products with V and dO where few remain (sparse_rows.h).
// Blocks run one after another and each product uses all threads, so sums over blocks have one order.
#include <limits>
#include <optional>
#include <vector>

#include "framework/cpu/attention_sparse.h"
#include "framework/cpu/cpu_backend.h"
#include "framework/weights_scope.h"

namespace gau::cpu {

namespace {

// Products of few keys cost less than the rounding of their operands to bf16.
DType value_products(Backend& backend, const AttentionBlock& block) {
  constexpr std::int64_t kLeastWidth = 256;
  return block.width < kLeastWidth ? DType::kF32 : backend.product_type();
}

// While blocks of one sequence follow each other, products keep its keys and values as they read them best (WeightsScope): each
// block of rows would pack them anew. Only where blocks read the same keys; copies for each window would be read once.
class SequenceScope {
 public:
  void enter(const Attention& attention, const AttentionInputs& in, const AttentionBlock& block) {
    const bool shared =
        block.sequences == 1 && block.rows < attention.geometry().queries() && block.width == attention.geometry().keys();
    const std::int64_t sequence = shared ? block.first_sequence : -1;
    if (sequence == sequence_) return;
    keys_.reset();
    values_.reset();
    sequence_ = sequence;
    if (!shared) return;
    values_.emplace(in.v);
    keys_.emplace(in.k_near);
  }

 private:
  std::int64_t sequence_ = -1;
  std::optional<WeightsScope> values_, keys_;
};

// What a call needs where it skips: room, and the keys packed for the first block that asks.
template <class T>
struct Skipping {
  Pieces<T> pieces;
  std::optional<CoarseKeys<T>> keys;
};

// The keys that matter and their weights where they are few enough for it to pay: then true. Otherwise all weights, in the
// matrix. Counts both ways.
template <class T>
bool weigh(Attention& attention, const AttentionBlock& block, Skipping<T>& skipping, SparseBlock<T>& sparse,
           double* log_sum_exp) {
  const AttentionPlan& plan = attention.plan();
  const std::int64_t pairs = sparse.strips() * block.width;
  bool few = false;
  if (plan.skip == 0 || block.width < SparseBlock<T>::kLeastWidth || attention.looks_dense<T>(block)) {
    attention.weigh<T>(block, nullptr, log_sum_exp);
  } else if (!attention.logits_are_products()) {
    attention.weigh<T>(block, &skipping.pieces, log_sum_exp);
    few = sparse.list(attention.weights().template data<T>(), skipping.pieces);
    if (!few) attention.fill_zeros(block, skipping.pieces);
  } else {
    if (!skipping.keys) skipping.keys.emplace(attention.regions().front().k);
    few = sparse.search(attention, *skipping.keys, log_sum_exp);
    if (!few) attention.weigh<T>(block, nullptr, log_sum_exp);
  }
  count_attention(pairs, few ? sparse.kept() : pairs);
  return few;
}

// factors[8 n + r] of the strip's rows and kept keys: dropout, 1 without.
template <class T>
void dropout_factors(const Attention& attention, const AttentionBlock& block, const DropoutSpec& dropout, const Strip<T>& strip,
                     std::int64_t first, std::int64_t rows, std::vector<T>& factors) {
  factors.assign(strip.size() * kStripRows, T(1));
  if (!dropout.active()) return;
  std::vector<T> row(static_cast<std::size_t>(block.width));
  for (std::int64_t r = 0; r < rows; ++r) {
    const AttentionRow at = attention.row(block, first + r);
    if (at.kind == RowKind::kNothing) continue;
    std::fill(row.begin(), row.end(), T(1));
    attention.drop(block, dropout, at, row.data());
    for (std::size_t n = 0; n < strip.size(); ++n) {
      factors[Strip<T>::place(n, r)] = row[static_cast<std::size_t>(strip.columns[n])];
    }
  }
}

template <class T>
void sparse_forward(Attention& attention, const AttentionBlock& block, const DropoutSpec& dropout,
                    const ColumnSlices<T>& values, SparseBlock<T>& sparse, Tensor out) {
  if (dropout.active()) {
    sparse.for_strips([&](Strip<T>& strip, std::int64_t first, std::int64_t rows) {
      std::vector<T> factors;
      dropout_factors(attention, block, dropout, strip, first, rows, factors);
      for (std::size_t n = 0; n < factors.size(); ++n) strip.weights[n] *= factors[n];
    });
  }
  sparse.weighted_sums(&Strip<T>::weights, values, out);
}

// slopes = A ⊙ (M ⊙ dA - rowsum(dO ⊙ O)) from dA, and weights = A ⊙ M.
template <class T>
void differentiate(const Attention& attention, const AttentionBlock& block, const DropoutSpec& dropout, const Tensor& out,
                   const Tensor& dout, Strip<T>& strip, std::int64_t first, std::int64_t rows) {
  const AttentionPlan& plan = attention.plan();
  const std::int64_t columns = out.dim(2);
  std::vector<T> factors;
  dropout_factors(attention, block, dropout, strip, first, rows, factors);
  for (std::int64_t r = 0; r < rows; ++r) {
    const AttentionRow at = attention.row(block, first + r);
    const std::int64_t from = (at.sequence * out.dim(1) + at.row) * columns;
    // Weights that are constant, not a softmax of logits, pass nothing to q and k.
    const bool softmax = at.kind == RowKind::kTokens;
    const T mean = softmax ? dot_row(dout.data<T>() + from, out.data<T>() + from, columns) : T(0);
    for (std::size_t n = 0; n < strip.size(); ++n) {
      const std::size_t place = Strip<T>::place(n, r);
      T& slope = strip.slopes[place];
      slope = softmax ? strip.weights[place] * (factors[place] * slope - mean) : T(0);
      if (plan.has_distance_law()) {
        slope *= static_cast<T>(
            plan.distance_scale[static_cast<std::size_t>(std::abs(at.position - block.key_of(strip.columns[n])))]);
      }
      strip.weights[place] *= factors[place];
    }
  }
}

// region_slopes = the slopes of the region's pairs, 0 for the others.
template <class T>
void take_region(const Attention& attention, const AttentionBlock& block, Region region, Strip<T>& strip, std::int64_t first,
                 std::int64_t rows) {
  strip.region_slopes.assign(strip.slopes.size(), T(0));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t i = attention.row(block, first + r).position;
    for (std::size_t n = 0; n < strip.size(); ++n) {
      const std::size_t place = Strip<T>::place(n, r);
      if (attention.plan().region(i, block.key_of(strip.columns[n])) == region)
        strip.region_slopes[place] = strip.slopes[place];
    }
  }
}

template <class T>
void sparse_backward(Attention& attention, const AttentionBlock& block, const AttentionInputs& in, const DropoutSpec& dropout,
                     const Tensor& out, const Tensor& dout, const std::vector<ColumnSlices<T>>& keys, SparseBlock<T>& sparse,
                     const AttentionGradients& gradients) {
  sparse.products(dout, in.v);
  sparse.for_strips([&](Strip<T>& strip, std::int64_t first, std::int64_t rows) {
    differentiate(attention, block, dropout, out, dout, strip, first, rows);
  });
  sparse.spread_to(&Strip<T>::weights, dout, gradients.v);
  for (const RegionInput& region : attention.regions()) {
    const auto [dq, dk] = gradients_of(gradients, region.region);
    auto slopes = &Strip<T>::slopes;
    if (attention.plan().has_far()) {
      slopes = &Strip<T>::region_slopes;
      sparse.for_strips([&](Strip<T>& strip, std::int64_t first, std::int64_t rows) {
        take_region(attention, block, region.region, strip, first, rows);
      });
    }
    sparse.weighted_sums(slopes, keys[static_cast<std::size_t>(region.region)], dq);
    sparse.spread_to(slopes, region.q, dk);
  }
}

template <class T>
void dense_backward(Backend& backend, Attention& attention, const AttentionBlock& block, const AttentionInputs& in,
                    const DropoutSpec& dropout, const Tensor& out, const Tensor& dout, Tensor ds, Tensor scratch,
                    const AttentionGradients& gradients) {
  const AttentionPlan& plan = attention.plan();
  Tensor weights = attention.weights();
  const std::int64_t columns = out.dim(2);
  for (const KeyRange& range : block.keys) {
    backend.gemm(rows_of(dout, block, block.first_row, block.rows, false), rows_of(in.v, block, range.first, range.count, true),
                 columns_of(ds, block, range.column, range.count, false), 1.0, false);
  }
  T* const all_weights = weights.data<T>();
  T* const all_ds = ds.data<T>();
  attention.for_rows(block, [&](const AttentionRow& at, std::int64_t n) {
    T* a = all_weights + n * block.width;
    T* d = all_ds + n * block.width;
    if (at.kind == RowKind::kNothing) {
      std::fill(d, d + block.width, T(0));
      return;
    }
    const std::int64_t from = (at.sequence * out.dim(1) + at.row) * columns;
    const T mean = dot_row(dout.data<T>() + from, out.data<T>() + from, columns);
    if (dropout.active()) attention.drop(block, dropout, at, d);
#pragma omp simd
    for (std::int64_t j = 0; j < block.width; ++j) d[j] = a[j] * (d[j] - mean);
    // Weights that are constant, not a softmax of logits, pass nothing to q and k.
    if (at.kind == RowKind::kUniform) std::fill(d, d + block.width, T(0));
    if (plan.has_distance_law()) scale_by_distance(block, plan, at.position, false, d);
    if (dropout.active()) attention.drop(block, dropout, at, a);
  });
  for (const KeyRange& range : block.keys) {
    backend.gemm(columns_of(weights, block, range.column, range.count, true),
                 rows_of(dout, block, block.first_row, block.rows, false),
                 rows_of(gradients.v, block, range.first, range.count, false), 1.0, true);
  }
  attention.spread<T>(block, ds, gradients, scratch);
}

// What attention gives where no row of a block sees a key.
template <class T>
void write_nothing(const Attention& attention, const AttentionBlock& block, Tensor out, double* log_sum_exp) {
  attention.for_rows(block, [&](const AttentionRow& at, std::int64_t) {
    const std::int64_t row = at.sequence * out.dim(1) + at.row;
    std::fill_n(out.data<T>() + row * out.dim(2), out.dim(2), T(0));
    log_sum_exp[row] = -std::numeric_limits<double>::infinity();
  });
}

template <class T>
void forward(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
             Tensor log_sum_exp) {
  Attention attention(backend, in, plan);
  Skipping<T> skipping;
  SequenceScope scope;
  std::optional<ColumnSlices<T>> values;  // made for the first block that needs them
  Tensor weights = attention.weights();
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    const ProductTypeScope products(backend, value_products(backend, block));
    if (block.width == 0) {
      write_nothing<T>(attention, block, out, log_sum_exp.data<double>());
      continue;
    }
    scope.enter(attention, in, block);
    SparseBlock<T> sparse(block);
    if (weigh(attention, block, skipping, sparse, log_sum_exp.data<double>())) {
      if (!values) values.emplace(in.v);
      sparse_forward(attention, block, dropout, *values, sparse, out);
      continue;
    }
    if (dropout.active()) {
      attention.for_rows(block, [&](const AttentionRow& at, std::int64_t n) {
        if (at.kind != RowKind::kNothing) attention.drop(block, dropout, at, weights.data<T>() + n * block.width);
      });
    }
    bool first = true;
    for (const KeyRange& range : block.keys) {
      backend.gemm(columns_of(weights, block, range.column, range.count, false),
                   rows_of(in.v, block, range.first, range.count, false),
                   rows_of(out, block, block.first_row, block.rows, false), 1.0, !first);
      first = false;
    }
  }
}

template <class T>
void backward(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout,
              const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout, const AttentionGradients& gradients) {
  Attention attention(backend, in, plan);
  attention.use_log_sums(log_sum_exp.data<double>());
  for (const Tensor* gradient : {&gradients.q_near, &gradients.k_near, &gradients.q_left, &gradients.k_left, &gradients.q_right,
                                 &gradients.k_right, &gradients.v}) {
    if (gradient->defined()) backend.fill(*gradient, 0);
  }
  Skipping<T> skipping;
  SequenceScope scope;
  std::vector<ColumnSlices<T>> keys;  // of every region, made for the first block that needs them
  Tensor ds = attention.buffer();
  Tensor scratch = plan.has_far() ? attention.buffer() : Tensor();
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    if (block.width == 0) continue;
    const ProductTypeScope products(backend, value_products(backend, block));
    scope.enter(attention, in, block);
    SparseBlock<T> sparse(block);
    if (weigh<T>(attention, block, skipping, sparse, nullptr)) {
      if (keys.empty()) {
        for (const RegionInput& region : attention.regions()) keys.emplace_back(region.k);
      }
      sparse_backward(attention, block, in, dropout, out, dout, keys, sparse, gradients);
    } else {
      dense_backward<T>(backend, attention, block, in, dropout, out, dout, ds, scratch, gradients);
    }
  }
}

template <class T>
void fill_weights(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) {
  Attention attention(backend, in, plan);
  const std::int64_t queries = attention.geometry().queries(), keys = attention.geometry().keys();
  backend.fill(weights, 0);
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    if (block.width == 0) continue;
    attention.weigh<T>(block, nullptr, nullptr);
    const Tensor block_weights = attention.weights();
    const T* from = block_weights.data<T>();
    T* to = weights.data<T>();
    attention.for_rows(block, [&](const AttentionRow& at, std::int64_t n) {
      for (const KeyRange& range : block.keys) {
        const T* row = from + n * block.width + range.column;
        std::copy(row, row + range.count, to + (at.sequence * queries + at.row) * keys + range.first);
      }
    });
  }
}

}  // namespace

}  // namespace gau::cpu

namespace gau {

void CpuBackend::attention(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
                           Tensor log_sum_exp) {
  if (in.q_near.dtype() == DType::kF64) {
    cpu::forward<double>(*this, in, plan, dropout, out, log_sum_exp);
  } else {
    cpu::forward<float>(*this, in, plan, dropout, out, log_sum_exp);
  }
}

void CpuBackend::attention_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout,
                                    const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                                    const AttentionGradients& gradients) {
  if (in.q_near.dtype() == DType::kF64) {
    cpu::backward<double>(*this, in, plan, dropout, out, log_sum_exp, dout, gradients);
  } else {
    cpu::backward<float>(*this, in, plan, dropout, out, log_sum_exp, dout, gradients);
  }
}

void CpuBackend::attention_weights(const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) {
  if (in.q_near.dtype() == DType::kF64) {
    cpu::fill_weights<double>(*this, in, plan, weights);
  } else {
    cpu::fill_weights<float>(*this, in, plan, weights);
  }
}

}  // namespace gau
