// The kernels' front doors: check, then call the backend. Attention, loss and optimizers are in kernels_training.cpp.
#include "framework/kernels.h"

#include <limits>
#include <vector>

#include "framework/kernel_checks.h"
#include "framework/kernel_timer.h"

namespace gau::kernels {
namespace {

std::string describe_view(const char* name, const MatrixView& view) {
  return fmt::format("{} {} x [{}, {}]", name, view.batch, view.rows, view.cols);
}

// Every element that the view reaches lies inside its tensor.
void require_inside(const char* name, const MatrixView& view) {
  check(
      view.rows >= 0 && view.cols >= 0 && view.batch >= 0 && view.offset >= 0 && view.row_stride >= 0 && view.batch_stride >= 0,
      ExitCode::kData, "kernel gemm: {} has a negative size, offset or stride", describe_view(name, view));
  if (view.rows == 0 || view.cols == 0 || view.batch == 0) return;
  const std::int64_t stored_rows = view.transposed ? view.cols : view.rows;
  const std::int64_t stored_cols = view.transposed ? view.rows : view.cols;
  check(stored_cols <= view.row_stride || stored_rows == 1, ExitCode::kData, "kernel gemm: rows of {} overlap (stride {})",
        describe_view(name, view), view.row_stride);
  const std::int64_t last =
      view.offset + (view.batch - 1) * view.batch_stride + (stored_rows - 1) * view.row_stride + stored_cols;
  check(last <= view.tensor.size(), ExitCode::kData, "kernel gemm: {} reaches element {} of {}", describe_view(name, view),
        last, describe(name, view.tensor));
}

void require_spec(const char* kernel, const Operand& x, const DropoutSpec& spec) {
  check(spec.rate >= 0 && spec.rate < 1, ExitCode::kData, "kernel {}: a dropout rate of {} is not in [0, 1)", kernel,
        spec.rate);
  if (!spec.active()) return;
  check(spec.length >= 1, ExitCode::kData, "kernel {}: dropout over sequences of {} rows", kernel, spec.length);
  if (spec.rows.defined()) {
    require_indices(kernel, {"dropout rows", spec.rows}, -1, std::numeric_limits<std::int32_t>::max());
    if (spec.rows.size() != x.tensor.rows()) mismatch(kernel, "dropout rows differ", x, {"dropout rows", spec.rows});
  }
}

}  // namespace

void gemm(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) {
  const KernelTimer timer("gemm");
  require_defined("gemm", {"a", a.tensor});
  require_defined("gemm", {"b", b.tensor});
  require_real("gemm", {"c", c.tensor});
  require_inside("a", a);
  require_inside("b", b);
  require_inside("c", c);
  const bool fits = a.rows == c.rows && a.cols == b.rows && b.cols == c.cols && (a.batch == c.batch || a.batch == 1) &&
                    (b.batch == c.batch || b.batch == 1);
  check(fits, ExitCode::kData, "kernel gemm: shapes do not fit: {} times {} into {}", describe_view("a", a),
        describe_view("b", b), describe_view("c", c));
  const auto suits = [&](DType type) {
    return type == c.tensor.dtype() || (type == DType::kBF16 && c.tensor.dtype() == DType::kF32);
  };
  check(suits(a.tensor.dtype()) && suits(b.tensor.dtype()), ExitCode::kData, "kernel gemm: types differ: {}, {}, {}",
        describe("a", a.tensor), describe("b", b.tensor), describe("c", c.tensor));
  backend().gemm(a, b, c, alpha, accumulate);
}

void fill(Tensor out, double value) {
  const KernelTimer timer("fill");
  require_defined("fill", {"out", out});
  backend().fill(out, value);
}

void convert(const Tensor& in, Tensor out) {
  const KernelTimer timer("convert");
  require_defined("convert", {"in", in});
  require_defined("convert", {"out", out});
  if (in.size() != out.size()) mismatch("convert", "sizes differ", {"in", in}, {"out", out});
  backend().convert(in, out);
}

void add(const Tensor& a, const Tensor& b, Tensor out) {
  const KernelTimer timer("add");
  require_real("add", {"a", a});
  require_same_size("add", {"a", a}, {"b", b});
  require_same_size("add", {"a", a}, {"out", out});
  backend().add(a, b, out);
}

void multiply(const Tensor& a, const Tensor& b, Tensor out) {
  const KernelTimer timer("multiply");
  require_real("multiply", {"a", a});
  require_same_size("multiply", {"a", a}, {"b", b});
  require_same_size("multiply", {"a", a}, {"out", out});
  backend().multiply(a, b, out);
}

void scale(const Tensor& x, double alpha, Tensor out) {
  const KernelTimer timer("scale");
  require_real("scale", {"x", x});
  require_same_size("scale", {"x", x}, {"out", out});
  backend().scale(x, alpha, out);
}

double sum(const Tensor& x) {
  const KernelTimer timer("sum");
  require_real("sum", {"x", x});
  return backend().sum(x);
}

double sum_of_squares(const Tensor& x) {
  const KernelTimer timer("sum_of_squares");
  require_real("sum_of_squares", {"x", x});
  return backend().sum_of_squares(x);
}

double dot(const Tensor& a, const Tensor& b) {
  const KernelTimer timer("dot");
  require_real("dot", {"a", a});
  require_same_size("dot", {"a", a}, {"b", b});
  return backend().dot(a, b);
}

void scale_rows(const Tensor& x, const Tensor& factor, Tensor out) {
  const KernelTimer timer("scale_rows");
  require_real("scale_rows", {"x", x});
  require_row_values("scale_rows", {"x", x}, {"factor", factor});
  require_same_matrix("scale_rows", {"x", x}, {"out", out});
  backend().scale_rows(x, factor, out);
}

void scale_columns(const Tensor& x, const Tensor& factor, Tensor out) {
  const KernelTimer timer("scale_columns");
  require_real("scale_columns", {"x", x});
  require_type("scale_columns", {"factor", factor}, x.dtype());
  if (factor.size() != x.columns()) mismatch("scale_columns", "columns differ", {"x", x}, {"factor", factor});
  require_same_matrix("scale_columns", {"x", x}, {"out", out});
  backend().scale_columns(x, factor, out);
}

void column_dot(const Tensor& a, const Tensor& b, Tensor out) {
  const KernelTimer timer("column_dot");
  require_real("column_dot", {"a", a});
  require_same_matrix("column_dot", {"a", a}, {"b", b});
  require_type("column_dot", {"out", out}, a.dtype());
  if (out.size() != a.columns()) mismatch("column_dot", "columns differ", {"a", a}, {"out", out});
  backend().column_dot(a, b, out);
}

void gather_rows(const Tensor& x, const Tensor& rows, Tensor out) {
  const KernelTimer timer("gather_rows");
  require_real("gather_rows", {"x", x});
  require_indices("gather_rows", {"rows", rows}, -1, x.rows());
  require_same_columns("gather_rows", {"x", x}, {"out", out});
  if (out.rows() != rows.size()) mismatch("gather_rows", "rows differ", {"rows", rows}, {"out", out});
  backend().gather_rows(x, rows, out);
}

void scatter_rows(const Tensor& x, const Tensor& rows, Tensor out) {
  const KernelTimer timer("scatter_rows");
  require_real("scatter_rows", {"x", x});
  require_same_columns("scatter_rows", {"x", x}, {"out", out});
  require_indices("scatter_rows", {"rows", rows}, -1, out.rows());
  if (x.rows() != rows.size()) mismatch("scatter_rows", "rows differ", {"x", x}, {"rows", rows});
  // Two sources for one row would race, and one of them would be lost.
  std::vector<bool> taken(static_cast<std::size_t>(out.rows()), false);
  for (const std::int32_t row : rows.span<std::int32_t>()) {
    if (row < 0) continue;
    check(!taken[static_cast<std::size_t>(row)], ExitCode::kData, "kernel scatter_rows: row {} appears twice", row);
    taken[static_cast<std::size_t>(row)] = true;
  }
  backend().scatter_rows(x, rows, out);
}

namespace {

std::int64_t width_of(const char* kernel, const Operand& h, const Operand& part) {
  if (!part.tensor.defined()) return 0;
  require_type(kernel, part, h.tensor.dtype());
  if (part.tensor.rows() != h.tensor.rows()) mismatch(kernel, "rows differ", h, part);
  return part.tensor.columns();
}

}  // namespace

void swish_split(const Tensor& h, Tensor u, Tensor v, Tensor z) {
  const KernelTimer timer("swish_split");
  const Operand whole{"h", h};
  require_real("swish_split", whole);
  const std::int64_t total = width_of("swish_split", whole, {"u", u}) + width_of("swish_split", whole, {"v", v}) +
                             width_of("swish_split", whole, {"z", z});
  check(total == h.columns(), ExitCode::kData, "kernel swish_split: {} does not split into {}, {} and {}", describe("h", h),
        describe("u", u), describe("v", v), describe("z", z));
  backend().swish_split(h, u, v, z);
}

void swish_split_backward(const Tensor& h, const Tensor& du, const Tensor& dv, const Tensor& dz, Tensor dh) {
  const KernelTimer timer("swish_split_backward");
  const Operand whole{"h", h};
  require_real("swish_split_backward", whole);
  require_same_matrix("swish_split_backward", whole, {"dh", dh});
  const std::int64_t total = width_of("swish_split_backward", whole, {"du", du}) +
                             width_of("swish_split_backward", whole, {"dv", dv}) +
                             width_of("swish_split_backward", whole, {"dz", dz});
  // What undefined gradients cover is zero; it must be one stretch of columns, or its place would be a guess.
  const bool one_stretch = du.defined() || dz.defined() || !dv.defined();
  check(total == h.columns() || (total < h.columns() && one_stretch && !(du.defined() && dv.defined() && dz.defined())),
        ExitCode::kData, "kernel swish_split_backward: {} does not split into {}, {} and {}", describe("h", h),
        describe("du", du), describe("dv", dv), describe("dz", dz));
  backend().swish_split_backward(h, du, dv, dz, dh);
}

void normalize_rows(const Tensor& x, Tensor out, Tensor inverse) {
  const KernelTimer timer("normalize_rows");
  require_real("normalize_rows", {"x", x});
  require_same_matrix("normalize_rows", {"x", x}, {"out", out});
  require_row_values("normalize_rows", {"x", x}, {"inverse", inverse});
  backend().normalize_rows(x, out, inverse);
}

void normalize_rows_backward(const Tensor& x, const Tensor& inverse, const Tensor& dout, Tensor dx) {
  const KernelTimer timer("normalize_rows_backward");
  require_real("normalize_rows_backward", {"x", x});
  require_row_values("normalize_rows_backward", {"x", x}, {"inverse", inverse});
  require_same_matrix("normalize_rows_backward", {"x", x}, {"dout", dout});
  require_same_matrix("normalize_rows_backward", {"x", x}, {"dx", dx});
  backend().normalize_rows_backward(x, inverse, dout, dx);
}

namespace {
// x [B, R, D] can be turned by the table at the positions (undefined: 0 … R - 1).
void require_rotation(const char* kernel, const Tensor& x, const RotaryTable& table, const Tensor& positions) {
  const Operand rows{"x", x}, cosines{"cos", table.cos};
  check(x.columns() % 2 == 0, ExitCode::kData, "kernel {}: {} is not [B, R, even]", kernel, describe("x", x));
  require_type(kernel, cosines, x.dtype());
  require_same_matrix(kernel, cosines, {"sin", table.sin});
  const int rank = table.cos.shape().rank();
  const bool per_sample = rank == 3;
  if ((rank != 2 && rank != 3) || table.cos.columns() * 2 != x.columns() || (per_sample && table.cos.dim(0) != x.dim(0))) {
    mismatch(kernel, "the table does not fit", rows, cosines);
  }
  const std::int64_t known = table.cos.dim(per_sample ? 1 : 0);
  const std::int64_t limit = known == 1 && !per_sample ? std::numeric_limits<std::int32_t>::max() : known;
  if (positions.defined()) {
    require_indices(kernel, {"positions", positions}, -1, limit);
    if (positions.size() != x.rows()) mismatch(kernel, "rows differ", rows, {"positions", positions});
  } else if (x.dim(1) > limit) {
    mismatch(kernel, "the table is too short", rows, cosines);
  }
}

void require_batched(const char* kernel, const Operand& x) {
  require_real(kernel, x);
  check(x.tensor.shape().rank() == 3, ExitCode::kData, "kernel {}: {} is not [B, R, D]", kernel, describe(x.name, x.tensor));
}

void require_head(const char* kernel, const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& outputs) {
  require_batched(kernel, {"z", z});
  require_type(kernel, {"gamma", how.gamma}, z.dtype());
  if (how.gamma.size() != z.columns()) mismatch(kernel, "columns differ", {"z", z}, {"gamma", how.gamma});
  if (how.factor.defined()) require_row_values(kernel, {"z", z}, {"factor", how.factor});
  check(how.tables.size() == outputs.size(), ExitCode::kData, "kernel {}: {} tables for {} outputs", kernel, how.tables.size(),
        outputs.size());
  for (const RotaryTable& table : how.tables) {
    if (table.defined()) require_rotation(kernel, z, table, how.positions);
  }
}
}  // namespace

void rotate(const Tensor& x, const RotaryTable& table, const Tensor& positions, bool inverse, Tensor out) {
  const KernelTimer timer("rotate");
  require_batched("rotate", {"x", x});
  require_same_matrix("rotate", {"x", x}, {"out", out});
  require_rotation("rotate", x, table, positions);
  backend().rotate(x, table, positions, inverse, out);
}

void head_rows(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& out) {
  const KernelTimer timer("head_rows");
  require_head("head_rows", z, how, out);
  for (const Tensor& one : out) require_same_matrix("head_rows", {"z", z}, {"out", one});
  backend().head_rows(z, how, out);
}

void head_rows_backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& dout, Tensor dz, Tensor dgamma) {
  const KernelTimer timer("head_rows_backward");
  require_head("head_rows_backward", z, how, dout);
  for (const Tensor& one : dout) {
    if (one.defined()) require_same_matrix("head_rows_backward", {"z", z}, {"dout", one});
  }
  require_same_matrix("head_rows_backward", {"z", z}, {"dz", dz});
  require_same_size("head_rows_backward", {"gamma", how.gamma}, {"dgamma", dgamma});
  backend().head_rows_backward(z, how, dout, dz, dgamma);
}

void dropout(const Tensor& x, const DropoutSpec& spec, Tensor out) {
  const KernelTimer timer("dropout");
  require_real("dropout", {"x", x});
  require_same_matrix("dropout", {"x", x}, {"out", out});
  require_spec("dropout", {"x", x}, spec);
  backend().dropout(x, spec, out);
}

void residual_rms_norm(const Tensor& residual, const Tensor& x, const DropoutSpec& spec, double eps, Tensor out,
                       Tensor inverse_rms) {
  const KernelTimer timer("residual_rms_norm");
  const Operand rows{"x", x};
  require_real("residual_rms_norm", rows);
  if (residual.defined()) require_same_matrix("residual_rms_norm", rows, {"residual", residual});
  require_same_matrix("residual_rms_norm", rows, {"out", out});
  require_row_values("residual_rms_norm", rows, {"inverse_rms", inverse_rms});
  require_spec("residual_rms_norm", rows, spec);
  backend().residual_rms_norm(residual, x, spec, eps, out, inverse_rms);
}

void residual_rms_norm_backward(const Tensor& out, const Tensor& inverse_rms, const Tensor& dout, const DropoutSpec& spec,
                                Tensor dresidual, Tensor dx) {
  const KernelTimer timer("residual_rms_norm_backward");
  const Operand rows{"out", out};
  require_real("residual_rms_norm_backward", rows);
  require_row_values("residual_rms_norm_backward", rows, {"inverse_rms", inverse_rms});
  require_same_matrix("residual_rms_norm_backward", rows, {"dout", dout});
  require_same_matrix("residual_rms_norm_backward", rows, {"dx", dx});
  if (dresidual.defined()) require_same_matrix("residual_rms_norm_backward", rows, {"dresidual", dresidual});
  require_spec("residual_rms_norm_backward", rows, spec);
  backend().residual_rms_norm_backward(out, inverse_rms, dout, spec, dresidual, dx);
}

}  // namespace gau::kernels
