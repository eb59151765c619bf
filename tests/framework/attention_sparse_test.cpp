// Attention that leaves out keys whose weight float32 cannot notice: as good as attention that computes all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/attention_counters.h"
#include "framework/kernels.h"
#include "framework/parallel.h"
#include "framework/random.h"

namespace gau {
namespace {

Tensor normal(const Shape& shape, DType dtype, std::uint64_t seed, double spread) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  const RandomKey key{seed, 0, Site::kSynthetic, 0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = key.draw(static_cast<std::uint32_t>(i), 0, 0);
    // Rounded to float, so that both types see the same numbers.
    values[i] = static_cast<float>(spread * std::sqrt(-2 * std::log((bits[0] + 1.0) / 4294967296.0)) *
                                   std::cos(2 * std::numbers::pi * bits[1] / 4294967296.0));
  }
  return Tensor::from(values, shape).to(dtype);
}

struct Problem {
  std::int64_t batch = 1, queries = 0, keys = 0, key_width = 16, value_width = 0;
  double spread = 3;
  bool padding = false;
  bool some_rows = false;
  bool mixed = false;    ///< half of the strips of rows attend evenly
  bool outlier = false;  ///< a number in every key that is larger than all others, and that no query looks at
  double dropout = 0;
  AttentionPlan plan;
};

struct Solution {
  Tensor out;
  AttentionGradients gradients;
  double skipped = 0;
  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors{out, gradients.q_near, gradients.k_near, gradients.v};
    for (const Tensor& far : {gradients.q_left, gradients.k_left, gradients.q_right, gradients.k_right}) {
      if (far.defined()) tensors.push_back(far);
    }
    return tensors;
  }
};

AttentionInputs inputs_of(const Problem& p, DType dtype) {
  AttentionInputs in;
  in.q_near = normal({p.batch, p.queries, p.key_width}, dtype, 1, p.spread);
  in.k_near = normal({p.batch, p.keys, p.key_width}, dtype, 2, p.spread);
  for (std::int64_t n = 0; p.mixed && n < in.q_near.rows(); ++n) {
    if (n % p.queries % 16 < 8) continue;
    Tensor row = in.q_near.segment(n * p.key_width, {p.key_width});
    kernels::scale(row, 0.01, row);
  }
  for (std::int64_t n = 0; p.outlier && n < in.q_near.rows(); ++n) kernels::fill(in.q_near.segment(n * p.key_width, {1}), 0);
  for (std::int64_t n = 0; p.outlier && n < in.k_near.rows(); ++n)
    kernels::fill(in.k_near.segment(n * p.key_width, {1}), n % 2 ? 1000 : -1000);
  if (p.plan.has_far()) {
    in.q_left = normal({p.batch, p.queries, p.key_width}, dtype, 3, p.spread);
    in.k_left = normal({p.batch, p.keys, p.key_width}, dtype, 4, p.spread);
    in.q_right = normal({p.batch, p.queries, p.key_width}, dtype, 5, p.spread);
    in.k_right = normal({p.batch, p.keys, p.key_width}, dtype, 6, p.spread);
  }
  in.v = normal({p.batch, p.keys, p.value_width}, dtype, 7, 1);
  if (p.padding) {
    std::vector<std::int32_t> mask(static_cast<std::size_t>(p.batch * p.keys), 1);
    std::fill(mask.end() - p.keys / 3, mask.end(), 0);
    in.key_mask = Tensor::from(mask, {p.batch, p.keys});
  }
  if (p.some_rows) {
    std::vector<std::int32_t> rows;
    for (std::int64_t r = 0; r < p.batch * p.queries; ++r) {
      rows.push_back(r % p.queries + 2 < p.queries ? static_cast<std::int32_t>(r % p.queries * 3) : -1);
    }
    in.rows = Tensor::from(rows, {p.batch, p.queries});
  }
  return in;
}

Solution solve(const Problem& p, DType dtype, double skip) {
  const AttentionInputs in = inputs_of(p, dtype);
  DropoutSpec dropout;
  dropout.rate = p.dropout;
  dropout.length = p.keys;
  AttentionPlan plan = p.plan;
  plan.skip = skip;
  Solution s;
  s.out = Tensor::empty({p.batch, p.queries, p.value_width}, dtype);
  Tensor log_sum_exp = Tensor::empty({p.batch, p.queries}, DType::kF64);
  reset_attention_counters();
  kernels::attention(in, plan, dropout, s.out, log_sum_exp);
  s.skipped = attention_counters().skipped_share();
  const auto like = [&](const Tensor& x) { return x.defined() ? Tensor::empty(x.shape(), dtype) : Tensor(); };
  s.gradients = {like(in.q_near),  like(in.k_near),  like(in.q_left), like(in.k_left),
                 like(in.q_right), like(in.k_right), like(in.v)};
  const Tensor dout = normal({p.batch, p.queries, p.value_width}, dtype, 8, 1);
  kernels::attention_backward(in, plan, dropout, s.out, log_sum_exp, dout, s.gradients);
  return s;
}

/// max |a - b| / max |b|.
double difference(const Tensor& a, const Tensor& b) {
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a.at(i) - b.at(i));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return most / scale;
}

/// ‖a - b‖ / ‖b‖: what rounding adds up to, where the largest single error is a matter of luck.
double distance(const Tensor& a, const Tensor& b) {
  double differences = 0, squares = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    differences += std::pow(a.at(i) - b.at(i), 2);
    squares += std::pow(b.at(i), 2);
  }
  return std::sqrt(differences / squares);
}

std::vector<std::pair<std::string, Problem>> problems() {
  Problem full;
  full.batch = 2;
  full.queries = full.keys = 300;
  full.value_width = 50;
  Problem padded = full, rows = full, dropped = full, sinks = full, far = full, wide = full, law = full, mixed = full,
          windowed = full, outlier = full, diagonal = full;
  padded.padding = true;
  rows.some_rows = true;
  rows.queries = 83;
  dropped.dropout = 0.3;
  sinks.plan.window = 130;
  sinks.plan.sinks = 5;
  far.plan.near_limit = 40;
  wide.value_width = 112;
  windowed.queries = windowed.keys = 700;
  windowed.plan.window = 200;
  windowed.plan.sinks = 5;
  mixed.mixed = true;
  outlier.outlier = true;
  outlier.key_width = 32;
  diagonal.plan.mask_diagonal = diagonal.padding = true;
  far.dropout = law.dropout = 0.2;
  for (int distance = 0; distance < 300; ++distance) {
    law.plan.distance_scale.push_back(1 + 0.1 * std::log1p(distance));
    law.plan.distance_shift.push_back(-0.3 * std::log1p(distance));
  }
  return {{"full", full},         {"padded", padded}, {"rows", rows},       {"dropout", dropped},
          {"sinks", sinks},       {"far", far},       {"wide", wide},       {"law", law},
          {"windowed", windowed}, {"mixed", mixed},   {"outlier", outlier}, {"diagonal", diagonal}};
}

TEST(SparseAttention, EqualsDenseInDoubleWithinItsBound) {
  for (const auto& [name, problem] : problems()) {
    const Solution dense = solve(problem, DType::kF64, 0), sparse = solve(problem, DType::kF64, 0x1p-24);
    EXPECT_EQ(dense.skipped, 0) << name;
    EXPECT_GT(sparse.skipped, problem.mixed ? -1 : 0.5) << name;
    for (std::size_t t = 0; t < dense.all().size(); ++t) {
      EXPECT_LE(difference(sparse.all()[t], dense.all()[t]), 4 * 0x1p-24) << name << ", tensor " << t;
    }
    // With a threshold of nothing the lists hold what is not exactly zero: the same numbers up to their order.
    const Solution exact = solve(problem, DType::kF64, 1e-300);
    for (std::size_t t = 0; t < dense.all().size(); ++t) {
      EXPECT_LE(difference(exact.all()[t], dense.all()[t]), 1e-12) << name << ", tensor " << t;
    }
  }
}

TEST(SparseAttention, ErrorAgainstDoubleIsThatOfDenseFloat) {
  for (const auto& [name, problem] : problems()) {
    const Solution truth = solve(problem, DType::kF64, 0);
    const Solution dense = solve(problem, DType::kF32, 0), sparse = solve(problem, DType::kF32, 0x1p-24);
    EXPECT_GT(sparse.skipped, problem.mixed ? -1 : 0.5) << name;
    for (std::size_t t = 0; t < truth.all().size(); ++t) {
      EXPECT_LE(distance(sparse.all()[t], truth.all()[t]), 1.1 * distance(dense.all()[t], truth.all()[t]))
          << name << ", tensor " << t;
    }
  }
}

TEST(SparseAttention, EvenAttentionStaysDense) {
  Problem even = problems().front().second;
  even.spread = 0.1;
  EXPECT_EQ(solve(even, DType::kF32, 0x1p-24).skipped, 0);
}

TEST(SparseAttention, AKeyThatIsNotANumberIsNeverLeftOut) {
  const Problem problem = problems().front().second;
  AttentionInputs in = inputs_of(problem, DType::kF32);
  // The first sequence's key 200 spoils every row of that sequence, however small its piece's other logits are.
  in.k_near.data<float>()[200 * problem.key_width] = NAN;
  Tensor out = Tensor::empty({problem.batch, problem.queries, problem.value_width}, DType::kF32);
  Tensor log_sum_exp = Tensor::empty({problem.batch, problem.queries}, DType::kF64);
  kernels::attention(in, problem.plan, {}, out, log_sum_exp);
  const std::int64_t half = out.size() / 2;
  for (std::int64_t i = 0; i < half; ++i) ASSERT_TRUE(std::isnan(out.at(i))) << i;
  EXPECT_TRUE(std::isfinite(out.at(half)));
}

TEST(SparseAttention, SameBitsForAnyNumberOfThreads) {
  const int before = threads();
  for (const auto& [name, problem] : problems()) {
    set_threads(1);
    const Solution one = solve(problem, DType::kF32, 0x1p-24);
    for (const int count : {2, 4}) {
      set_threads(count);
      const Solution many = solve(problem, DType::kF32, 0x1p-24);
      for (std::size_t t = 0; t < one.all().size(); ++t) EXPECT_EQ(difference(many.all()[t], one.all()[t]), 0) << name;
    }
  }
  set_threads(before);
}

}  // namespace
}  // namespace gau
