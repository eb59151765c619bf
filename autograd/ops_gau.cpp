// The fused ops of a GAU layer and of the loss.
#include <utility>

#include "autograd/attention_values.h"
#include "autograd/ops.h"
#include "framework/backend.h"
#include "framework/error.h"
#include "framework/kernels.h"

namespace gau::ops {

std::array<Variable, 3> swish_split(const Variable& h, std::int64_t u, std::int64_t v, std::int64_t z) {
  const Tensor hv = h.value();
  const std::int64_t rows = hv.rows();
  std::array<Tensor, 3> parts;
  std::vector<Tensor> present;
  const std::array<std::int64_t, 3> widths{u, v, z};
  for (std::size_t i = 0; i < 3; ++i) {
    if (widths[i] == 0) continue;
    parts[i] = Tensor::empty({rows, widths[i]}, hv.dtype());
    present.push_back(parts[i]);
  }
  kernels::swish_split(hv, parts[0], parts[1], parts[2]);
  std::vector<Variable> outputs =
      record("swish_split", std::move(present), {h}, [hv, widths](std::span<const Tensor> g, std::span<const Wanted>) {
        std::array<Tensor, 3> d;
        std::size_t next = 0;
        for (std::size_t i = 0; i < 3; ++i) {
          if (widths[i] == 0) continue;
          d[i] = g[next].defined() ? g[next] : Tensor::zeros({hv.rows(), widths[i]}, hv.dtype());
          ++next;
        }
        Tensor dh = Tensor::empty(hv.shape(), hv.dtype());
        kernels::swish_split_backward(hv, d[0], d[1], d[2], dh);
        return std::vector<Tensor>{dh};
      });
  std::array<Variable, 3> result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (widths[i] != 0) result[i] = outputs[next++];
  }
  return result;
}

Variable normalize_rows(const Variable& x) {
  const Tensor xv = x.value();
  Tensor y = Tensor::empty(xv.shape(), xv.dtype());
  Tensor inverse = Tensor::empty({xv.rows()}, xv.dtype());
  kernels::normalize_rows(xv, y, inverse);
  return record("normalize_rows", y, {x}, [xv, inverse](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor d = Tensor::empty(xv.shape(), xv.dtype());
    kernels::normalize_rows_backward(xv, inverse, g[0], d);
    return std::vector<Tensor>{d};
  });
}

Variable rotate(const Variable& x, const RotaryTable& table, const Tensor& positions) {
  if (!table.defined()) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::rotate(x.value(), table, positions, false, y);
  return record("rotate", y, {x}, [table, positions](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor d = Tensor::empty(g[0].shape(), g[0].dtype());
    kernels::rotate(g[0], table, positions, true, d);
    return std::vector<Tensor>{d};
  });
}

std::vector<Variable> head_rows(const Variable& z, const Variable& gamma, HeadTransform how) {
  const Tensor zv = z.value();
  how.gamma = gamma.value();
  std::vector<Tensor> outputs;
  for (std::size_t t = 0; t < how.tables.size(); ++t) outputs.push_back(Tensor::empty(zv.shape(), zv.dtype()));
  kernels::head_rows(zv, how, outputs);
  return record("head_rows", std::move(outputs), {z, gamma}, [zv, how](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor dz = Tensor::empty(zv.shape(), zv.dtype()), dgamma = Tensor::empty(how.gamma.shape(), zv.dtype());
    kernels::head_rows_backward(zv, how, {g.begin(), g.end()}, dz, dgamma);
    return std::vector<Tensor>{dz, dgamma};
  });
}

Variable residual_rms_norm(const Variable& residual, const Variable& x, const DropoutSpec& spec, double eps) {
  const Tensor xv = x.value();
  Tensor y = Tensor::empty(xv.shape(), xv.dtype());
  Tensor inverse = Tensor::empty({xv.rows()}, xv.dtype());
  kernels::residual_rms_norm(residual.defined() ? residual.value() : Tensor(), xv, spec, eps, y, inverse);
  return record("residual_rms_norm", y, {residual, x},
                [y, inverse, spec](std::span<const Tensor> g, std::span<const Wanted> wanted) {
                  std::vector<Tensor> d(2);
                  if (wanted[0]) d[0] = Tensor::empty(y.shape(), y.dtype());
                  d[1] = Tensor::empty(y.shape(), y.dtype());
                  kernels::residual_rms_norm_backward(y, inverse, g[0], spec, d[0], d[1]);
                  return d;
                });
}

Variable embed(const Variable& word, const Variable& type, const Tensor& ids, const Tensor& types, std::int64_t pad_id) {
  const Tensor wv = word.value(), tv = type.value();
  std::array<std::int64_t, 4> dims{};
  const int rank = ids.shape().rank();
  for (int i = 0; i < rank; ++i) dims[static_cast<std::size_t>(i)] = ids.dim(i);
  dims[static_cast<std::size_t>(rank)] = wv.dim(1);
  Tensor y = Tensor::empty(Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank) + 1)), wv.dtype());
  kernels::embed(wv, tv, ids, types, y);
  const Shape word_shape = wv.shape(), type_shape = tv.shape();
  return record("embed", y, {word, type},
                [word_shape, type_shape, ids, types, pad_id](std::span<const Tensor> g, std::span<const Wanted> wanted) {
                  std::vector<Tensor> into(2), d(2);
                  for (std::size_t i = 0; i < 2; ++i) {
                    if (!wanted[i]) continue;
                    into[i] = wanted[i].buffer;
                    if (!into[i].defined()) {
                      into[i] = d[i] = Tensor::zeros(i == 0 ? word_shape : type_shape, g[0].dtype());
                    } else if (!wanted[i].begun()) {
                      kernels::fill(into[i], 0);
                    }
                  }
                  kernels::embed_backward(g[0], ids, types, pad_id, into[0], into[1]);
                  return d;
                });
}

Variable attention(const AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec) {
  const AttentionInputs values = values_of(in);
  const Tensor& q = values.q_near;
  Tensor out = Tensor::empty({q.dim(0), q.dim(1), values.v.dim(2)}, q.dtype());
  Tensor log_sum_exp = Tensor::empty({q.dim(0), q.dim(1)}, DType::kF64);
  kernels::attention(values, plan, spec, out, log_sum_exp);
  return record("attention", out, {in.q_near, in.k_near, in.q_left, in.k_left, in.q_right, in.k_right, in.v},
                [values, plan, spec, out, log_sum_exp](std::span<const Tensor> g, std::span<const Wanted>) {
                  const AttentionGradients d = gradients_like(values);
                  kernels::attention_backward(values, plan, spec, out, log_sum_exp, g[0], d);
                  return std::vector<Tensor>{d.q_near, d.k_near, d.q_left, d.k_left, d.q_right, d.k_right, d.v};
                });
}

CrossEntropy cross_entropy(const Variable& logits, const Tensor& labels) {
  const Tensor lv = logits.value();
  CrossEntropy result;
  result.row_loss = Tensor::empty({lv.rows()}, DType::kF64);
  result.predicted = Tensor::empty({lv.rows()}, DType::kI32);
  Tensor log_sum_exp = Tensor::empty({lv.rows()}, lv.dtype());
  kernels::cross_entropy(lv, labels, result.row_loss, result.predicted, log_sum_exp);
  Tensor sum = Tensor::empty({1}, DType::kF64);
  sum.data<double>()[0] = kernels::sum(result.row_loss);
  result.sum =
      record("cross_entropy", sum, {logits}, [lv, labels, log_sum_exp](std::span<const Tensor> g, std::span<const Wanted>) {
        Tensor d = Tensor::empty(lv.shape(), lv.dtype());
        kernels::cross_entropy_backward(lv, labels, log_sum_exp, g[0].item(), d);
        return std::vector<Tensor>{d};
      });
  return result;
}

}  // namespace gau::ops
