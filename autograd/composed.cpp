// Composed forms out of small ops.
#include "autograd/composed.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau::composed {

namespace {

// A tensor like `like` whose element i is f(i): the loops below are the definition, not a fast path.
template <class F>
Tensor fill_like(const Tensor& like, F&& f) {
  Tensor out = Tensor::empty(like.shape(), like.dtype());
  for (std::int64_t i = 0; i < like.size(); ++i) {
    if (like.dtype() == DType::kF64) {
      out.data<double>()[i] = f(i);
    } else {
      out.data<float>()[i] = static_cast<float>(f(i));
    }
  }
  return out;
}

// The value of `x` where `choose(b, i, j)`, else 0; linear in x.
template <class F>
Variable select(const Variable& x, F&& choose) {
  const Tensor& v = x.value();
  const std::int64_t queries = v.dim(1), keys = v.dim(2);
  const Tensor chosen =
      fill_like(v, [&](std::int64_t n) { return choose(n / (queries * keys), n / keys % queries, n % keys) ? 1.0 : 0.0; });
  return ops::multiply(x, Variable(chosen));
}

// softmax by rows of `logits` restricted to pairs whose entry in `allowed` is 1: exp(x - max) · allowed / Σ.
Variable masked_softmax(const Variable& logits, const Tensor& allowed) {
  const Tensor& v = logits.value();
  const std::int64_t keys = v.columns();
  const Tensor shift = fill_like(v, [&](std::int64_t n) {
    double largest = -1e300;
    const std::int64_t row = n / keys * keys;
    for (std::int64_t j = row; j < row + keys; ++j) {
      if (allowed.at(j) != 0) largest = std::max(largest, v.at(j));
    }
    // A forbidden pair gets a shift that its exponential cannot overflow with; it is multiplied by 0 below.
    return allowed.at(n) != 0 ? -largest : -v.at(n);
  });
  const auto exponential = [](double x) { return std::exp(x); };
  const Variable e = ops::multiply(map(ops::add(logits, Variable(shift)), exponential, exponential), Variable(allowed));
  const Variable inverse = map(
      row_sum(e), [](double s) { return s > 0 ? 1 / s : 0; }, [](double s) { return s > 0 ? -1 / (s * s) : 0; });
  return scale_rows(e, inverse);
}

}  // namespace

Variable map(const Variable& x, const std::function<double(double)>& f, const std::function<double(double)>& derivative) {
  const Tensor xv = x.value();
  Tensor y = fill_like(xv, [&](std::int64_t i) { return f(xv.at(i)); });
  return record("map", y, {x}, [xv, derivative](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{fill_like(xv, [&](std::int64_t i) { return derivative(xv.at(i)) * g[0].at(i); })};
  });
}

Variable row_sum(const Variable& x) {
  const Tensor xv = x.value();
  const std::int64_t columns = xv.columns();
  Tensor y = fill_like(Tensor::empty({xv.rows()}, xv.dtype()), [&](std::int64_t r) {
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += xv.at(r * columns + c);
    return sum;
  });
  return record("row_sum", y, {x}, [xv, columns](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{fill_like(xv, [&](std::int64_t i) { return g[0].at(i / columns); })};
  });
}

Variable scale_rows(const Variable& x, const Variable& factor) {
  const Tensor xv = x.value(), fv = factor.value();
  const std::int64_t columns = xv.columns();
  Tensor y = fill_like(xv, [&](std::int64_t i) { return xv.at(i) * fv.at(i / columns); });
  return record("scale_rows", y, {x, factor}, [xv, fv, columns](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{fill_like(xv, [&](std::int64_t i) { return g[0].at(i) * fv.at(i / columns); }),
                               fill_like(fv, [&](std::int64_t r) {
                                 double sum = 0;
                                 for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) sum += g[0].at(i) * xv.at(i);
                                 return sum;
                               })};
  });
}

Variable slice_columns(const Variable& x, std::int64_t begin, std::int64_t end) {
  const Tensor xv = x.value();
  const std::int64_t columns = xv.columns(), width = end - begin;
  Tensor y = fill_like(Tensor::empty({xv.rows(), width}, xv.dtype()),
                       [&](std::int64_t i) { return xv.at(i / width * columns + begin + i % width); });
  return record("slice_columns", y, {x}, [=](std::span<const Tensor> g, std::span<const Wanted>) {
    return std::vector<Tensor>{fill_like(xv, [&](std::int64_t i) {
      const std::int64_t c = i % columns - begin;
      return c >= 0 && c < width ? g[0].at(i / columns * width + c) : 0.0;
    })};
  });
}

std::array<Variable, 3> swish_split(const Variable& h, std::int64_t u, std::int64_t v, std::int64_t z) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Variable y = ops::multiply(h, map(h, sigmoid, [=](double x) { return sigmoid(x) * (1 - sigmoid(x)); }));
  std::array<Variable, 3> parts;
  if (u) parts[0] = slice_columns(y, 0, u);
  if (v) parts[1] = slice_columns(y, u, u + v);
  if (z) parts[2] = slice_columns(y, u + v, u + v + z);
  return parts;
}

Variable normalize_rows(const Variable& x) {
  const Variable squares = row_sum(ops::multiply(x, x));
  // 1 / (sqrt(s) + 1e-9), and 0 with derivative 0 at s = 0.
  const Variable inverse = map(
      squares, [](double s) { return s > 0 ? 1 / (std::sqrt(s) + 1e-9) : 0; },
      [](double s) { return s > 0 ? -0.5 / (std::sqrt(s) * std::pow(std::sqrt(s) + 1e-9, 2)) : 0; });
  return scale_rows(x, inverse);
}

std::vector<Variable> head_rows(const Variable& z, const Variable& gamma, const std::vector<Variable>& scales,
                                const HeadTransform& how) {
  Variable x = ops::scale_columns(z, gamma);
  if (how.normalize) x = ops::normalize_rows(x);
  for (const Variable& scale : scales) x = ops::scale_by(x, scale);
  x = ops::scale_rows(x, how.factor);
  std::vector<Variable> turned;
  for (const RotaryTable& table : how.tables) turned.push_back(ops::rotate(x, table, how.positions));
  return turned;
}

Variable residual_rms_norm(const Variable& residual, const Variable& x, const DropoutSpec& spec, double eps) {
  const Variable dropped = ops::dropout(x, spec);
  const Variable y = residual.defined() ? ops::add(residual, dropped) : dropped;
  const double columns = static_cast<double>(y.value().columns());
  const Variable inverse = map(
      row_sum(ops::multiply(y, y)), [=](double s) { return 1 / std::sqrt(s / columns + eps); },
      [=](double s) { return -0.5 / columns * std::pow(s / columns + eps, -1.5); });
  return scale_rows(y, inverse);
}

Variable attention(const ops::AttentionVariables& in, const AttentionPlan& plan, const DropoutSpec& spec) {
  const std::int64_t batch = in.q_near.dim(0), queries = in.q_near.dim(1), keys = in.k_near.dim(1);
  const auto position = [&](std::int64_t b, std::int64_t r) -> std::int64_t {
    return in.rows.defined() ? in.rows.data<std::int32_t>()[b * queries + r] : r;
  };
  const auto in_region = [&](Region region) {
    return [&, region](std::int64_t b, std::int64_t r, std::int64_t j) {
      return position(b, r) >= 0 && plan.region(position(b, r), j) == region;
    };
  };
  Variable logits = select(ops::batched_matmul(in.q_near, in.k_near, true), in_region(Region::kNear));
  if (plan.has_far()) {
    logits = ops::add(logits, select(ops::batched_matmul(in.q_left, in.k_left, true), in_region(Region::kLeft)));
    logits = ops::add(logits, select(ops::batched_matmul(in.q_right, in.k_right, true), in_region(Region::kRight)));
  }

  const auto is_token = [&](std::int64_t b, std::int64_t j) {
    return !in.key_mask.defined() || in.key_mask.data<std::int32_t>()[b * keys + j] != 0;
  };
  Tensor allowed = Tensor::zeros(logits.shape(), logits.dtype());
  Tensor extra = Tensor::zeros(logits.shape(), logits.dtype());
  Tensor factor = Tensor::zeros(logits.shape(), logits.dtype());  // 0 in rows that see no token: they attend to all alike
  std::vector<char> see(static_cast<std::size_t>(keys));
  const auto put = [](Tensor& tensor, std::int64_t at, double value) {
    if (tensor.dtype() == DType::kF64) {
      tensor.data<double>()[at] = value;
    } else {
      tensor.data<float>()[at] = static_cast<float>(value);
    }
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    bool any_token = false;
    for (std::int64_t j = 0; j < keys; ++j) any_token = any_token || is_token(b, j);
    for (std::int64_t r = 0; r < queries; ++r) {
      const std::int64_t i = position(b, r);
      if (i < 0 || !any_token) continue;
      bool sees = false;
      for (std::int64_t j = 0; j < keys; ++j) {
        see[static_cast<std::size_t>(j)] = plan.visible(i, j) && is_token(b, j);
        sees = sees || see[static_cast<std::size_t>(j)];
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t at = (b * queries + r) * keys + j;
        put(allowed, at, see[static_cast<std::size_t>(j)] || !sees);
        const std::size_t distance = static_cast<std::size_t>(std::abs(i - j));
        const bool by_distance = plan.has_distance_law();
        put(factor, at, sees ? (by_distance ? plan.distance_scale[distance] : 1) : 0);
        put(extra, at, sees ? plan.bias(i, j) + (by_distance ? plan.distance_shift[distance] : 0) : 0);
      }
    }
  }
  logits = ops::add(ops::multiply(logits, Variable(factor)), Variable(extra));
  // Dropout is keyed by (sample, position of the query, key): tell it which position each row is.
  DropoutSpec keyed = spec;
  if (in.rows.defined()) {
    keyed.rows = Tensor::empty({batch * queries}, DType::kI32);
    for (std::int64_t r = 0; r < batch * queries; ++r) {
      const std::int64_t i = std::max<std::int64_t>(0, position(r / queries, r % queries));
      keyed.rows.data<std::int32_t>()[r] = static_cast<std::int32_t>(r / queries * spec.length + i);
    }
  }
  const Variable weights = ops::dropout(masked_softmax(logits, allowed), keyed);
  return ops::batched_matmul(weights, in.v, false);
}

Variable cross_entropy(const Variable& logits, const Tensor& labels) {
  const Tensor& v = logits.value();
  const std::int64_t columns = v.columns();
  const Tensor shift = fill_like(v, [&](std::int64_t n) {
    double largest = -1e300;
    for (std::int64_t j = n / columns * columns; j < (n / columns + 1) * columns; ++j) largest = std::max(largest, v.at(j));
    return -largest;
  });
  const auto label = [&](std::int64_t row) { return labels.data<std::int32_t>()[row]; };
  const Variable shifted = ops::add(logits, Variable(shift));
  const Variable log_sum = map(
      row_sum(map(
          shifted, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); })),
      [](double s) { return std::log(s); }, [](double s) { return 1 / s; });
  const Tensor labelled = fill_like(log_sum.value(), [&](std::int64_t row) { return label(row) >= 0 ? 1.0 : 0.0; });
  const Tensor onehot = fill_like(v, [&](std::int64_t n) { return label(n / columns) == n % columns ? -1.0 : 0.0; });
  return ops::add(ops::weighted_sum(log_sum, labelled), ops::weighted_sum(shifted, onehot));
}

}  // namespace gau::composed
