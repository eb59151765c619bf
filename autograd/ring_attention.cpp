#include "autograd/ring_attention.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "autograd/attention_values.h"
#include "framework/kernels.h"
#include "framework/parallel.h"
#include "framework/visible_keys.h"

namespace gau::ops {
namespace {

// What belongs to keys, its gradients, and those of queries.
constexpr Tensor AttentionInputs::*kKeys[] = {&AttentionInputs::k_near, &AttentionInputs::k_left, &AttentionInputs::k_right,
                                              &AttentionInputs::v};
constexpr Tensor AttentionGradients::*kKeyGradients[] = {&AttentionGradients::k_near, &AttentionGradients::k_left,
                                                         &AttentionGradients::k_right, &AttentionGradients::v};
constexpr Tensor AttentionGradients::*kQueryGradients[] = {&AttentionGradients::q_near, &AttentionGradients::q_left,
                                                           &AttentionGradients::q_right};

/// Whether some query row of a member sees some key of a part: the same on all members, since all know all positions.
class Sight {
 public:
  Sight(const AttentionPlan& plan, const Tensor& key_mask, const SharedSequence& shared, const SharedQueries& queries,
        std::int64_t batch)
      : count_(shared.bounds.size() - 1), seen_(count_ * count_, false) {
    const std::int64_t length = shared.bounds.back();
    for (std::int64_t b = 0; b < batch; ++b) {
      const VisibleKeys keys(plan, key_mask.defined() ? key_mask.data<std::int32_t>() + b * length : nullptr, length);
      if (keys.empty()) continue;
      for (std::size_t member = 0; member < count_; ++member) look(keys, member, b, shared.bounds, queries);
    }
  }

  bool operator()(int member, int part) const {
    return seen_[static_cast<std::size_t>(member) * count_ + static_cast<std::size_t>(part)];
  }

 private:
  void look(const VisibleKeys& keys, std::size_t member, std::int64_t b, const std::vector<std::int64_t>& bounds,
            const SharedQueries& queries) {
    const std::int64_t rows = queries.bounds.back();
    for (std::int64_t r = queries.bounds[member]; r < queries.bounds[member + 1]; ++r) {
      const std::int64_t i = queries.positions.defined() ? queries.positions.data<std::int32_t>()[b * rows + r] : r;
      if (i < 0) continue;
      const bool uniform = keys.sees_nothing(i);  // such a row looks at all keys
      bool all = true;
      for (std::size_t p = 0; p < count_; ++p) {
        char& seen = seen_[member * count_ + p];
        seen = seen || (uniform ? bounds[p] < bounds[p + 1] : keys.seen(i, bounds[p], bounds[p + 1]) > 0);
        all = all && (seen || bounds[p] == bounds[p + 1]);
      }
      if (all) return;
    }
  }

  std::size_t count_;
  std::vector<char> seen_;
};

class Ring {
 public:
  Ring(const AttentionInputs& own, const AttentionPlan& plan, const DropoutSpec& spec, const SharedSequence& shared,
       const SharedQueries& queries)
      : own_(own),
        plan_(plan),
        spec_(spec),
        shared_(shared),
        me_(shared.group.index()),
        count_(shared.group.count),
        sees_(plan, own.key_mask, shared, queries, own.q_near.dim(0)) {
    plan_.skip /= count_;
  }

  void forward(Tensor out, Tensor log_sum_exp) const {
    bool first = true;
    for_steps([&](int, const AttentionInputs* part) {
      if (!part) return;
      if (std::exchange(first, false)) return kernels::attention(*part, plan_, spec_, out, log_sum_exp);
      Tensor more = Tensor::empty(out.shape(), out.dtype()), sums = Tensor::empty(log_sum_exp.shape(), DType::kF64);
      kernels::attention(*part, plan_, spec_, more, sums);
      kernels::merge_attention(more, sums, out, log_sum_exp);
    });
    if (!first) return;
    kernels::fill(out, 0);
    kernels::fill(log_sum_exp, -std::numeric_limits<double>::infinity());
  }

  AttentionGradients backward(const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout) const {
    RowTransfers returning(shared_.group, shared_.backward_label());
    const PollScope poll([&] { returning.progress(); });
    AttentionGradients total, arriving;
    const auto add_arrived = [&] {
      returning.wait();
      for (const auto member : kKeyGradients) add(arriving.*member, total.*member);
      arriving = {};
    };
    for_steps([&](int step, const AttentionInputs* part) {
      AttentionGradients d;
      if (part) {
        d = gradients_like(*part);
        kernels::attention_backward(*part, plan_, spec_, out, log_sum_exp, dout, d);
      }
      if (step == 0) {
        total = part ? d : zeros();
        return;
      }
      for (const auto member : kQueryGradients) add(d.*member, total.*member);
      // What the former step has sent was on its way while this one worked.
      add_arrived();
      for (std::size_t t = 0; t < std::size(kKeys); ++t) {
        if (part) returning.send(owner_in(step), d.*kKeyGradients[t]);
        if (sees_(user_in(step), me_)) {
          arriving.*kKeyGradients[t] = empty_like(own_.*kKeys[t]);
          returning.receive(user_in(step), arriving.*kKeyGradients[t]);
        }
      }
    });
    add_arrived();
    return total;
  }

 private:
  /// Whose part this member looks at in a step, and who looks at its own.
  int owner_in(int step) const { return (me_ + count_ - step) % count_; }
  int user_in(int step) const { return (me_ + step) % count_; }

  static void zero(const Tensor& x) {
    if (x.defined()) kernels::fill(x, 0);
  }
  AttentionGradients zeros() const {
    const AttentionGradients d = gradients_like(own_);
    for (const auto member : kQueryGradients) zero(d.*member);
    for (const auto member : kKeyGradients) zero(d.*member);
    return d;
  }
  static void add(const Tensor& x, const Tensor& sum) {
    if (x.defined()) kernels::add(sum, x, sum);
  }

  /// Calls work(step, this member's inputs with the keys of the step's part; null: it sees none of them) step by step, while
  /// the next step's part is on its way and advances between the blocks of loops.
  template <class F>
  void for_steps(const F& work) const {
    RowTransfers sending(shared_.group, shared_.forward_label());
    RowTransfers receiving(shared_.group, shared_.forward_label());
    const PollScope poll([&] { receiving.progress(); });
    AttentionInputs part = own_, next;
    part.first_key = shared_.bounds[static_cast<std::size_t>(me_)];
    part.length = shared_.bounds.back();
    for (int step = 0; step < count_; ++step) {
      if (step + 1 < count_) {
        if (sees_(user_in(step + 1), me_)) send_own(user_in(step + 1), sending);
        if (sees_(me_, owner_in(step + 1))) next = receive_part(owner_in(step + 1), receiving);
      }
      work(step, sees_(me_, owner_in(step)) ? &part : nullptr);
      receiving.wait();
      part = std::exchange(next, {});
    }
    sending.wait();
  }

  void send_own(int user, RowTransfers& sending) const {
    for (const auto keys : kKeys) sending.send(user, own_.*keys);
  }

  AttentionInputs receive_part(int owner, RowTransfers& receiving) const {
    const auto at = static_cast<std::size_t>(owner);
    AttentionInputs part = own_;
    part.first_key = shared_.bounds[at];
    part.length = shared_.bounds.back();
    for (const auto keys : kKeys) {
      const Tensor& mine = own_.*keys;
      if (!mine.defined()) continue;
      part.*keys = Tensor::empty({mine.dim(0), shared_.bounds[at + 1] - shared_.bounds[at], mine.dim(2)}, mine.dtype());
      receiving.receive(owner, part.*keys);
    }
    return part;
  }

  AttentionInputs own_;
  AttentionPlan plan_;
  DropoutSpec spec_;
  SharedSequence shared_;
  int me_, count_;
  Sight sees_;
};

}  // namespace

Variable ring_attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec,
                        const SharedSequence& shared, const SharedQueries& queries) {
  const Ring ring(values_of(in), plan, spec, shared, queries);
  const Tensor q = in.q_near.value();
  Tensor out = Tensor::empty({q.dim(0), q.dim(1), in.v.dim(2)}, q.dtype());
  Tensor log_sum_exp = Tensor::empty({q.dim(0), q.dim(1)}, DType::kF64);
  ring.forward(out, log_sum_exp);
  return record("ring_attention", out, {in.q_near, in.k_near, in.q_left, in.k_left, in.q_right, in.k_right, in.v},
                [ring, out, log_sum_exp](std::span<const Tensor> g, std::span<const Wanted>) {
                  const AttentionGradients d = ring.backward(out, log_sum_exp, g[0]);
                  return std::vector<Tensor>{d.q_near, d.k_near, d.q_left, d.k_left, d.q_right, d.k_right, d.v};
                });
}

}  // namespace gau::ops
