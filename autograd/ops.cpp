// Ops without inner structure: products, element and row operations.
#include "autograd/ops.h"

#include <numeric>
#include <utility>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau::ops {

namespace {
Shape with_columns(const Shape& shape, std::int64_t columns) {
  std::array<std::int64_t, 4> dims{};
  for (int i = 0; i < shape.rank(); ++i) dims[static_cast<std::size_t>(i)] = shape[i];
  dims[static_cast<std::size_t>(shape.rank() - 1)] = columns;
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(shape.rank())));
}

// What several products share: rounded once, where products are to round their operands.
Tensor product_operand(const Tensor& x) {
  if (x.dtype() != DType::kF32 || backend().product_type() != DType::kBF16 || !backend().has_native_bf16()) return x;
  Tensor rounded = Tensor::empty(x.shape(), DType::kBF16);
  kernels::convert(x, rounded);
  return rounded;
}
}  // namespace

Variable linear(const Variable& x, const Variable& w) {
  const Tensor xv = product_operand(x.value()), wv = w.value();
  const Shape shape = x.shape();
  Tensor y = Tensor::empty(with_columns(shape, wv.dim(0)), x.dtype());
  kernels::gemm(MatrixView::of(xv), MatrixView::of(wv, true), MatrixView::of(y), 1.0, false);
  return record("linear", y, {x, w}, [xv, wv, shape](std::span<const Tensor> g, std::span<const Wanted> wanted) {
    const Tensor gv = product_operand(g[0]);
    std::vector<Tensor> d(2);
    if (wanted[0]) {
      d[0] = Tensor::empty(shape, g[0].dtype());
      kernels::gemm(MatrixView::of(gv), MatrixView::of(wv), MatrixView::of(d[0]), 1.0, false);
    }
    if (wanted[1]) {
      const bool direct = wanted[1].buffer.defined();
      const Tensor dw = direct ? wanted[1].buffer : Tensor::empty(wv.shape(), wv.dtype());
      kernels::gemm(MatrixView::of(gv, true), MatrixView::of(xv), MatrixView::of(dw), 1.0, direct && wanted[1].begun());
      if (!direct) d[1] = dw;
    }
    return d;
  });
}

Variable batched_matmul(const Variable& a, const Variable& b, bool transpose_b) {
  const Tensor av = a.value(), bv = b.value();
  Tensor y = Tensor::empty({av.dim(0), av.dim(1), bv.dim(transpose_b ? 1 : 2)}, av.dtype());
  kernels::gemm(MatrixView::batched(av), MatrixView::batched(bv, transpose_b), MatrixView::batched(y), 1.0, false);
  return record("batched_matmul", y, {a, b}, [av, bv, transpose_b](std::span<const Tensor> g, std::span<const Wanted> wanted) {
    std::vector<Tensor> d(2);
    if (wanted[0]) {
      d[0] = Tensor::empty(av.shape(), av.dtype());
      kernels::gemm(MatrixView::batched(g[0]), MatrixView::batched(bv, !transpose_b), MatrixView::batched(d[0]), 1.0, false);
    }
    if (wanted[1]) {
      d[1] = Tensor::empty(bv.shape(), bv.dtype());
      const MatrixView left = transpose_b ? MatrixView::batched(g[0], true) : MatrixView::batched(av, true);
      const MatrixView right = transpose_b ? MatrixView::batched(av) : MatrixView::batched(g[0]);
      kernels::gemm(left, right, MatrixView::batched(d[1]), 1.0, false);
    }
    return d;
  });
}

Variable reshape(const Variable& x, const Shape& shape) {
  const Shape before = x.shape();
  return record("reshape", x.value().reshaped(shape), {x}, [before](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{g[0].reshaped(before)};
  });
}

Variable slice_rows(const Variable& x, std::int64_t begin, std::int64_t end) {
  const Shape whole = x.shape();
  const std::int64_t columns = whole.columns();
  return record("slice_rows", x.value().segment(begin * columns, {end - begin, columns}), {x},
                [whole, begin, columns](std::span<const Tensor> g, std::span<const Wanted> wanted) {
                  if (wanted[0].buffer.defined()) {
                    if (!wanted[0].begun()) kernels::fill(wanted[0].buffer, 0);
                    const Tensor part = wanted[0].buffer.segment(begin * columns, g[0].shape());
                    kernels::add(part, g[0], part);
                    return std::vector<Tensor>(1);
                  }
                  Tensor d = Tensor::zeros(whole, g[0].dtype());
                  kernels::convert(g[0], d.segment(begin * columns, g[0].shape()));
                  return std::vector<Tensor>{d};
                });
}

Variable gather_rows(const Variable& x, const Tensor& rows, const Shape& shape) {
  const Shape whole = x.shape();
  const Shape flat{rows.size(), whole.columns()};
  Tensor y = Tensor::empty(flat, x.dtype());
  kernels::gather_rows(x.value(), rows, y);
  return record("gather_rows", shape.rank() ? y.reshaped(shape) : y, {x},
                [whole, flat, rows](std::span<const Tensor> g, std::span<const Wanted>) {
                  Tensor d = Tensor::empty(whole, g[0].dtype());
                  kernels::scatter_rows(g[0].reshaped(flat), rows, d);
                  return std::vector<Tensor>{d};
                });
}

Variable add(const Variable& a, const Variable& b) {
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  kernels::add(a.value(), b.value(), y);
  return record("add", y, {a, b}, [](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{g[0], g[0]};
  });
}

Variable multiply(const Variable& a, const Variable& b) {
  const Tensor av = a.value(), bv = b.value();
  Tensor y = Tensor::empty(av.shape(), av.dtype());
  kernels::multiply(av, bv, y);
  return record("multiply", y, {a, b}, [av, bv](std::span<const Tensor> g, std::span<const Wanted> wanted) {
    std::vector<Tensor> d(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!wanted[i]) continue;
      d[i] = Tensor::empty(av.shape(), av.dtype());
      kernels::multiply(g[0].reshaped(av.shape()), i == 0 ? bv : av, d[i]);
    }
    return d;
  });
}

Variable scale_columns(const Variable& x, const Variable& gamma) {
  const Tensor xv = x.value(), gv = gamma.value();
  Tensor y = Tensor::empty(xv.shape(), xv.dtype());
  kernels::scale_columns(xv, gv, y);
  return record("scale_columns", y, {x, gamma}, [xv, gv](std::span<const Tensor> g, std::span<const Wanted> wanted) {
    std::vector<Tensor> d(2);
    if (wanted[0]) {
      d[0] = Tensor::empty(xv.shape(), xv.dtype());
      kernels::scale_columns(g[0], gv, d[0]);
    }
    if (wanted[1]) {
      d[1] = Tensor::empty(gv.shape(), gv.dtype());
      kernels::column_dot(g[0], xv, d[1]);
    }
    return d;
  });
}

Variable scale_rows(const Variable& x, const Tensor& factor) {
  if (!factor.defined()) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::scale_rows(x.value(), factor, y);
  return record("scale_rows", y, {x}, [factor](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor d = Tensor::empty(g[0].shape(), g[0].dtype());
    kernels::scale_rows(g[0], factor, d);
    return std::vector<Tensor>{d};
  });
}

Variable scale_by(const Variable& x, const Variable& s) {
  const Tensor xv = x.value(), sv = s.value();
  Tensor y = Tensor::empty(xv.shape(), xv.dtype());
  kernels::scale(xv, sv.item(), y);
  return record("scale_by", y, {x, s}, [xv, sv](std::span<const Tensor> g, std::span<const Wanted> wanted) {
    std::vector<Tensor> d(2);
    if (wanted[0]) {
      d[0] = Tensor::empty(xv.shape(), xv.dtype());
      kernels::scale(g[0], sv.item(), d[0]);
    }
    if (wanted[1]) {
      d[1] = Tensor::empty(sv.shape(), sv.dtype());
      kernels::fill(d[1], kernels::dot(g[0].reshaped(xv.shape()), xv));
    }
    return d;
  });
}

Variable weighted_sum(const Variable& x, const Tensor& weights) {
  Tensor sum = Tensor::empty({1}, DType::kF64);
  sum.data<double>()[0] = kernels::dot(x.value(), weights);
  const Shape shape = x.shape();
  return record("weighted_sum", sum, {x}, [weights, shape](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor d = Tensor::empty(shape, weights.dtype());
    kernels::scale(weights.reshaped(shape), g[0].item(), d);
    return std::vector<Tensor>{d};
  });
}

Variable dropout(const Variable& x, const DropoutSpec& spec) {
  if (!spec.active()) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::dropout(x.value(), spec, y);
  return record("dropout", y, {x}, [spec](std::span<const Tensor> g, std::span<const Wanted>) {
    Tensor d = Tensor::empty(g[0].shape(), g[0].dtype());
    kernels::dropout(g[0], spec, d);
    return std::vector<Tensor>{d};
  });
}

}  // namespace gau::ops
