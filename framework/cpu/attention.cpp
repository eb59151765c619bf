// Attention of the CPU backend: blocks of query rows, whole rows of logits at a time.
//
// For each block: logits by one product per region, softmax row by row, weights · v by another product. The backward pass
// computes the weights again instead of keeping them. With A the weights, M the dropout factors and O the output,
//   dA = M ⊙ (dO Vᵀ),  dS = A ⊙ (dA - rowsum(dO ⊙ O)),  dV += (A ⊙ M)ᵀ dO,  dQ = dS K,  dK += dSᵀ Q.
// Keys whose weight float32 cannot notice are left out of the products with V and dO where few remain (sparse_rows.h).
// Blocks run one after another and each product uses all threads, so sums over blocks have one order.
#include "framework/cpu/attention_rows.h"
#include "framework/cpu/attention_sparse.h"
#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dropout_row.h"
#include "framework/parallel.h"

namespace gau::cpu {

namespace {

constexpr std::int64_t kRowGrain = 4;  // rows of logits that one thread takes at a time

// The block's part of a tensor [B, N, C] (rows `first` to `first + count` of each of its sequences) as a batch of matrices.
MatrixView rows_of(const Tensor& x, const AttentionBlock& block, std::int64_t first, std::int64_t count, bool transposed) {
  const std::int64_t columns = x.dim(2), stride = x.dim(1) * columns;
  return {x,
          transposed ? columns : count,
          transposed ? count : columns,
          columns,
          transposed,
          block.first_sequence * stride + first * columns,
          block.sequences,
          stride};
}

// `count` columns of the block's matrix of logits.
MatrixView columns_of(const Tensor& s, const AttentionBlock& block, std::int64_t column, std::int64_t count, bool transposed) {
  return {s,
          transposed ? count : block.rows,
          transposed ? block.rows : count,
          block.width,
          transposed,
          column,
          block.sequences,
          block.rows * block.width};
}

struct RegionInput {
  Region region;
  const Tensor& q;
  const Tensor& k;
};

class Attention {
 public:
  Attention(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan)
      : backend_(backend), in_(in), plan_(plan), geometry_(in, plan) {
    regions_.push_back({Region::kNear, in.q_near, in.k_near});
    if (plan.has_far()) {
      regions_.push_back({Region::kLeft, in.q_left, in.k_left});
      regions_.push_back({Region::kRight, in.q_right, in.k_right});
      far_ = buffer();
    }
    weights_ = buffer();
  }

  const AttentionGeometry& geometry() const { return geometry_; }
  Tensor buffer() const { return Tensor::empty({geometry_.largest()}, in_.q_near.dtype()); }
  Tensor weights() const { return weights_; }

  // Calls f(sequence, row, kind, position, index of the row in the block) for the block's rows, in parallel.
  template <class F>
  void for_rows(const AttentionBlock& block, F&& f) const {
    parallel_for(block.sequences * block.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::int64_t b = block.first_sequence + n / block.rows, r = block.first_row + n % block.rows;
        f(b, r, geometry_.kind(b, r), geometry_.position(b, r), n);
      }
    });
  }

  // Fills weights() with the block's attention weights; ln Σ exp goes to log_sum_exp when it is given. A weight below its row's
  // threshold may be taken as 0.
  template <class T>
  void weigh(const AttentionBlock& block, std::vector<T>& thresholds, T* log_sum_exp) {
    thresholds.resize(static_cast<std::size_t>(block.sequences * block.rows));
    // Logits decide by differences; at s = 128 a bf16 product is off by 1e-2. They cost a twelfth of the value products.
    const ProductTypeScope exact(backend_, DType::kF32);
    for (const RegionInput& region : regions_) logits_of<T>(block, region);
    T* const all = weights_.data<T>();
    for_rows(block, [&](std::int64_t b, std::int64_t r, RowKind kind, std::int64_t i, std::int64_t n) {
      T* row = all + n * block.width;
      T value = 0;
      T largest = 1;
      if (kind == RowKind::kTokens) {
        if (plan_.has_distance_law()) scale_by_distance(block, plan_, i, true, row);
        mask_row(block, plan_, geometry_.mask(b), i, row);
        value = softmax_row(row, block.width, largest);
      } else {
        const T alike = kind == RowKind::kUniform ? T(1) / static_cast<T>(block.width) : T(0);
        std::fill(row, row + block.width, alike);
        if (kind == RowKind::kUniform) largest = alike;
      }
      thresholds[static_cast<std::size_t>(n)] = static_cast<T>(plan_.skip / static_cast<double>(block.width)) * largest;
      if (log_sum_exp) log_sum_exp[b * geometry_.queries() + r] = value;
    });
  }

  // Multiplies one row of the block by its dropout factors.
  template <class T>
  void drop(const AttentionBlock& block, const DropoutSpec& spec, std::int64_t b, std::int64_t i, T* row) const {
    for (const KeyRange& range : block.keys) {
      dropout_row(spec, spec.first_sample + static_cast<std::uint64_t>(b), i, range.first, range.count, row + range.column);
    }
  }

  // dQ += dS K and dK += dSᵀ Q of every region, from the block's dS; `scratch` is of the size of a buffer.
  template <class T>
  void spread(const AttentionBlock& block, const Tensor& ds, const AttentionGradients& gradients, Tensor scratch) {
    for (const RegionInput& region : regions_) {
      const Tensor& dq = region.region == Region::kNear   ? gradients.q_near
                         : region.region == Region::kLeft ? gradients.q_left
                                                          : gradients.q_right;
      const Tensor& dk = region.region == Region::kNear   ? gradients.k_near
                         : region.region == Region::kLeft ? gradients.k_left
                                                          : gradients.k_right;
      const Tensor& part = plan_.has_far() ? scratch : ds;
      for (const KeyRange& range : block.keys) {
        const ColumnSpan span = region_span(block, range, region.region, plan_);
        if (span.count == 0) continue;
        if (plan_.has_far()) restrict_to<T>(block, span, region.region, ds, scratch);
        backend_.gemm(columns_of(part, block, span.column, span.count, false),
                      rows_of(region.k, block, span.first_key, span.count, false),
                      rows_of(dq, block, block.first_row, block.rows, false), 1.0, true);
        backend_.gemm(columns_of(part, block, span.column, span.count, true),
                      rows_of(region.q, block, block.first_row, block.rows, false),
                      rows_of(dk, block, span.first_key, span.count, false), 1.0, true);
      }
    }
  }

 private:
  // Logits of one region into weights_; far ones through a second buffer, of which only the region's pairs are taken.
  template <class T>
  void logits_of(const AttentionBlock& block, const RegionInput& region) {
    const bool near = region.region == Region::kNear;
    for (const KeyRange& range : block.keys) {
      const ColumnSpan span = region_span(block, range, region.region, plan_);
      if (span.count == 0) continue;
      backend_.gemm(rows_of(region.q, block, block.first_row, block.rows, false),
                    rows_of(region.k, block, span.first_key, span.count, true),
                    columns_of(near ? weights_ : far_, block, span.column, span.count, false), 1.0, false);
      if (near) continue;
      const T* from = far_.data<T>();
      T* to = weights_.data<T>();
      for_rows(block, [&](std::int64_t, std::int64_t, RowKind, std::int64_t i, std::int64_t n) {
        const auto [begin, end] = row_columns(span, region.region, i);
        std::copy(from + n * block.width + begin, from + n * block.width + end, to + n * block.width + begin);
      });
    }
  }

  // Columns of the span that lie in the region for the query at position i.
  std::pair<std::int64_t, std::int64_t> row_columns(const ColumnSpan& span, Region region, std::int64_t i) const {
    std::int64_t begin = span.first_key, end = span.first_key + span.count;
    switch (region) {
      case Region::kNear:
        begin = std::max(begin, i - plan_.near_limit + 1);
        end = std::min(end, i + plan_.near_limit);
        break;
      case Region::kLeft:
        end = std::min(end, i - plan_.near_limit + 1);
        break;
      case Region::kRight:
        begin = std::max(begin, i + plan_.near_limit);
        break;
    }
    begin = std::min(begin, span.first_key + span.count);
    end = std::max(end, begin);
    return {span.column + begin - span.first_key, span.column + end - span.first_key};
  }

  // scratch = ds on the region's pairs of the span, 0 on the span's others.
  template <class T>
  void restrict_to(const AttentionBlock& block, const ColumnSpan& span, Region region, const Tensor& ds, Tensor scratch) const {
    const T* from = ds.data<T>();
    T* to = scratch.data<T>();
    for_rows(block, [&](std::int64_t, std::int64_t, RowKind, std::int64_t i, std::int64_t n) {
      const auto [begin, end] = row_columns(span, region, i);
      const T* in = from + n * block.width;
      T* out = to + n * block.width;
      std::fill(out + span.column, out + begin, T(0));
      std::copy(in + begin, in + end, out + begin);
      std::fill(out + end, out + span.column + span.count, T(0));
    });
  }

  Backend& backend_;
  const AttentionInputs& in_;
  const AttentionPlan& plan_;
  AttentionGeometry geometry_;
  std::vector<RegionInput> regions_;
  Tensor weights_;
  Tensor far_;
};

// Products of few keys cost less than the rounding of their operands to bf16.
DType value_products(Backend& backend, const AttentionBlock& block) {
  constexpr std::int64_t kLeastWidth = 256;
  return block.width < kLeastWidth ? DType::kF32 : backend.product_type();
}

// Lists the keys of the block that matter, when they are few enough for it to pay; counts both ways.
template <class T>
bool list_kept(const AttentionBlock& block, const AttentionPlan& plan, const T* weights, const std::vector<T>& thresholds,
               SparseBlock<T>& sparse) {
  const std::int64_t strips = block.sequences * ((block.rows + kStripRows - 1) / kStripRows);
  const bool few = plan.skip > 0 && block.width >= SparseBlock<T>::kLeastWidth && sparse.list(weights, thresholds);
  count_attention(strips * block.width, few ? sparse.kept() : strips * block.width);
  return few;
}

template <class T>
void forward(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& dropout, Tensor out,
             Tensor log_sum_exp) {
  Attention attention(backend, in, plan);
  std::vector<T> thresholds;
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    const ProductTypeScope products(backend, value_products(backend, block));
    attention.weigh<T>(block, thresholds, log_sum_exp.data<T>());
    Tensor weights = attention.weights();
    T* const all = weights.data<T>();
    SparseBlock<T> sparse(block);
    const bool few = list_kept(block, plan, all, thresholds, sparse);
    if (dropout.active()) {
      attention.for_rows(block, [&](std::int64_t b, std::int64_t, RowKind kind, std::int64_t i, std::int64_t n) {
        if (kind != RowKind::kNothing) attention.drop(block, dropout, b, i, all + n * block.width);
      });
    }
    if (few) {
      sparse.pick(all);
      sparse.weighted_sums(in.v, out);
      continue;
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
              const Tensor& out, const Tensor& dout, const AttentionGradients& gradients) {
  Attention attention(backend, in, plan);
  for (const Tensor* gradient : {&gradients.q_near, &gradients.k_near, &gradients.q_left, &gradients.k_left, &gradients.q_right,
                                 &gradients.k_right, &gradients.v}) {
    if (gradient->defined()) backend.fill(*gradient, 0);
  }
  Tensor ds = attention.buffer();
  Tensor scratch = plan.has_far() ? attention.buffer() : Tensor();
  const std::int64_t queries = attention.geometry().queries(), columns = out.dim(2);
  std::vector<T> thresholds;
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    const ProductTypeScope products(backend, value_products(backend, block));
    attention.weigh<T>(block, thresholds, nullptr);
    Tensor weights = attention.weights();
    T* const all_weights = weights.data<T>();
    T* const all_ds = ds.data<T>();
    SparseBlock<T> sparse(block);
    const bool few = list_kept(block, plan, all_weights, thresholds, sparse);
    if (few) {
      std::fill(all_ds, all_ds + block.sequences * block.rows * block.width, T(0));
      sparse.products(dout, in.v, all_ds);
    } else {
      for (const KeyRange& range : block.keys) {
        backend.gemm(rows_of(dout, block, block.first_row, block.rows, false),
                     rows_of(in.v, block, range.first, range.count, true),
                     columns_of(ds, block, range.column, range.count, false), 1.0, false);
      }
    }
    attention.for_rows(block, [&](std::int64_t b, std::int64_t r, RowKind kind, std::int64_t i, std::int64_t n) {
      T* a = all_weights + n * block.width;
      T* d = all_ds + n * block.width;
      if (kind == RowKind::kNothing) {
        std::fill(d, d + block.width, T(0));
        return;
      }
      const std::int64_t at = (b * queries + r) * columns;
      const T mean = dot_row(dout.data<T>() + at, out.data<T>() + at, columns);
      if (dropout.active()) attention.drop(block, dropout, b, i, d);
      const T threshold = few ? thresholds[static_cast<std::size_t>(n)] : T(0);
#pragma omp simd
      for (std::int64_t j = 0; j < block.width; ++j) d[j] = a[j] >= threshold ? a[j] * (d[j] - mean) : T(0);
      // Weights that are constant, not a softmax of logits, pass nothing to q and k.
      if (kind == RowKind::kUniform) std::fill(d, d + block.width, T(0));
      if (plan.has_distance_law()) scale_by_distance(block, plan, i, false, d);
      if (dropout.active()) attention.drop(block, dropout, b, i, a);
    });
    if (few) {
      sparse.pick(all_weights);
      sparse.spread_to(dout, gradients.v);
    } else {
      for (const KeyRange& range : block.keys) {
        backend.gemm(columns_of(weights, block, range.column, range.count, true),
                     rows_of(dout, block, block.first_row, block.rows, false),
                     rows_of(gradients.v, block, range.first, range.count, false), 1.0, true);
      }
    }
    attention.spread<T>(block, ds, gradients, scratch);
  }
}

template <class T>
void fill_weights(Backend& backend, const AttentionInputs& in, const AttentionPlan& plan, Tensor weights) {
  Attention attention(backend, in, plan);
  const std::int64_t queries = attention.geometry().queries(), keys = attention.geometry().keys();
  backend.fill(weights, 0);
  std::vector<T> thresholds;
  for (const AttentionBlock& block : attention.geometry().blocks()) {
    attention.weigh<T>(block, thresholds, nullptr);
    const Tensor block_weights = attention.weights();
    const T* from = block_weights.data<T>();
    T* to = weights.data<T>();
    attention.for_rows(block, [&](std::int64_t b, std::int64_t r, RowKind, std::int64_t, std::int64_t n) {
      for (const KeyRange& range : block.keys) {
        const T* row = from + n * block.width + range.column;
        std::copy(row, row + range.count, to + (b * queries + r) * keys + range.first);
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
                                    const Tensor& out, const Tensor& /*log_sum_exp*/, const Tensor& dout,
                                    const AttentionGradients& gradients) {
  if (in.q_near.dtype() == DType::kF64) {
    cpu::backward<double>(*this, in, plan, dropout, out, dout, gradients);
  } else {
    cpu::backward<float>(*this, in, plan, dropout, out, dout, gradients);
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
