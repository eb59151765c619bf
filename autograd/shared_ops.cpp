#include "autograd/shared_ops.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/attention_values.h"
#include "autograd/ring_attention.h"
#include "framework/attention_block_rows.h"
#include "framework/kernels.h"

namespace gau::ops {
namespace {

/// Sequence b of a tensor [B, …].
Tensor sequence_of(const Tensor& x, std::int64_t b) {
  if (!x.defined()) return {};
  const std::int64_t size = x.size() / x.dim(0);
  if (x.shape().rank() == 2) return x.segment(b * size, {1, x.dim(1)});
  return x.segment(b * size, {1, x.dim(1), x.dim(2)});
}

AttentionInputs sequence_of(const AttentionInputs& in, std::int64_t b) {
  return {sequence_of(in.q_near, b), sequence_of(in.k_near, b),   sequence_of(in.q_left, b),
          sequence_of(in.k_left, b), sequence_of(in.q_right, b),  sequence_of(in.k_right, b),
          sequence_of(in.v, b),      sequence_of(in.key_mask, b), sequence_of(in.rows, b)};
}

AttentionGradients sequence_of(const AttentionGradients& d, std::int64_t b) {
  return {sequence_of(d.q_near, b),  sequence_of(d.k_near, b),  sequence_of(d.q_left, b), sequence_of(d.k_left, b),
          sequence_of(d.q_right, b), sequence_of(d.k_right, b), sequence_of(d.v, b)};
}

/// The rows of all ranks from this rank's `mine` [B, N, C].
Tensor gathered(const Tensor& mine, const SharedSequence& shared) {
  Tensor all = Tensor::empty({mine.dim(0), shared.bounds.back(), mine.dim(2)}, mine.dtype());
  shared.group.gather(shared.forward_label(), shared.bounds, mine, all);
  return all;
}

/// Calls f(b) for the parts of a batch that attention works on together: as for whole sequences on one rank, where blocks hold
/// rows of several sequences only if these have no more than a block's rows.
template <class F>
void for_parts(std::int64_t batch, std::int64_t whole_rows, const F& f) {
  if (batch == 1 || whole_rows <= kAttentionBlockRows) return f(-1);
  for (std::int64_t b = 0; b < batch; ++b) f(b);
}

DropoutSpec spec_of(DropoutSpec spec, std::int64_t b) {
  spec.first_sample += static_cast<std::uint64_t>(b);
  return spec;
}

void attend(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& spec, std::int64_t whole_rows, Tensor out,
            Tensor log_sum_exp) {
  for_parts(out.dim(0), whole_rows, [&](std::int64_t b) {
    if (b < 0) return kernels::attention(in, plan, spec, out, log_sum_exp);
    kernels::attention(sequence_of(in, b), plan, spec_of(spec, b), sequence_of(out, b), sequence_of(log_sum_exp, b));
  });
}

void attend_backward(const AttentionInputs& in, const AttentionPlan& plan, const DropoutSpec& spec, std::int64_t whole_rows,
                     const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout, const AttentionGradients& d) {
  for_parts(out.dim(0), whole_rows, [&](std::int64_t b) {
    if (b < 0) return kernels::attention_backward(in, plan, spec, out, log_sum_exp, dout, d);
    kernels::attention_backward(sequence_of(in, b), plan, spec_of(spec, b), sequence_of(out, b), sequence_of(log_sum_exp, b),
                                sequence_of(dout, b), sequence_of(d, b));
  });
}

}  // namespace

AttentionInputs gathered(const AttentionInputs& in, const SharedSequence& shared) {
  AttentionInputs all = in;
  for (Tensor* keys : {&all.k_near, &all.k_left, &all.k_right, &all.v}) {
    if (keys->defined()) *keys = gathered(*keys, shared);
  }
  return all;
}

namespace {

Variable gathered_attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec,
                            const SharedSequence& shared, std::int64_t whole_rows) {
  const AttentionInputs own = values_of(in);
  const Tensor& q = own.q_near;
  Tensor out = Tensor::empty({q.dim(0), q.dim(1), own.v.dim(2)}, q.dtype());
  Tensor log_sum_exp = Tensor::empty({q.dim(0), q.dim(1)}, DType::kF64);
  attend(gathered(own, shared), plan, spec, whole_rows, out, log_sum_exp);
  return record("shared_attention", out, {in.q_near, in.k_near, in.q_left, in.k_left, in.q_right, in.k_right, in.v},
                [own, plan, spec, shared, whole_rows, out, log_sum_exp](std::span<const Tensor> g, std::span<const Wanted>) {
                  const AttentionInputs all = gathered(own, shared);
                  const AttentionGradients d = gradients_like(all);
                  attend_backward(all, plan, spec, whole_rows, out, log_sum_exp, g[0], d);
                  const auto own_part = [&](const Tensor& of_all, const Tensor& like) {
                    if (!like.defined()) return Tensor();
                    Tensor mine = Tensor::empty(like.shape(), like.dtype());
                    shared.group.scatter_sum(shared.backward_label(), shared.bounds, of_all, mine);
                    return mine;
                  };
                  return std::vector<Tensor>{d.q_near,
                                             own_part(d.k_near, own.k_near),
                                             d.q_left,
                                             own_part(d.k_left, own.k_left),
                                             d.q_right,
                                             own_part(d.k_right, own.k_right),
                                             own_part(d.v, own.v)};
                });
}

}  // namespace

Variable shared_attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec,
                          const SharedSequence& shared, const SharedQueries& queries) {
  if (shared.group.sequence_exchange == SequenceExchange::kRing) return ring_attention(in, plan, spec, shared, queries);
  return gathered_attention(in, plan, spec, shared, queries.bounds.back());
}

Variable move_rows(const Variable& x, const RowMoves& moves, const SharedSequence& shared) {
  const Shape whole = x.shape();
  const std::int64_t columns = whole.columns();
  const std::int64_t arrivals =
      std::max<std::int64_t>(1, std::accumulate(moves.received.begin(), moves.received.end(), std::int64_t{0}));
  Tensor leaving = Tensor::empty({moves.leaving.size(), columns}, x.dtype());
  Tensor arrived = Tensor::empty({arrivals, columns}, x.dtype());
  Tensor y = Tensor::empty({moves.arriving.size(), columns}, x.dtype());
  kernels::gather_rows(x.value(), moves.leaving, leaving);
  shared.group.exchange(shared.forward_label(), moves.sent, leaving, moves.received, arrived);
  kernels::gather_rows(arrived, moves.arriving, y);
  return record("move_rows", y, {x}, [moves, shared, whole, arrivals](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor back = Tensor::empty({arrivals, whole.columns()}, g[0].dtype());
    Tensor home = Tensor::zeros({moves.leaving.size(), whole.columns()}, g[0].dtype());
    kernels::scatter_rows(g[0], moves.arriving, back);
    shared.group.exchange(shared.backward_label(), moves.received, back, moves.sent, home);
    Tensor d = Tensor::empty(whole, g[0].dtype());
    kernels::scatter_rows(home, moves.leaving, d);
    return std::vector<Tensor>{d};
  });
}

Variable shared_sum(const Variable& sum, double total) {
  Tensor value = Tensor::empty({1}, DType::kF64);
  value.data<double>()[0] = total;
  return record("shared_sum", value, {sum},
                [](std::span<const Tensor> g, std::span<const Wanted>) { return std::vector<Tensor>{g[0]}; });
}

}  // namespace gau::ops
