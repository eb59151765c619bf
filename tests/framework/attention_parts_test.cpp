// Attention over parts of the keys, merged: attention over all of them, with its gradients, whatever the plan.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/attention_counters.h"
#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

struct PartCase {
  std::string name;
  AttentionPlan plan;
  std::int64_t keys = 150;
  std::int64_t batch = 2;
  std::int64_t queries = keys;  ///< fewer: every third row and so on, the last unused
  bool padding = false;
  double dropout = 0;
  double spread = 1;
};

Tensor random_of(const Shape& shape, DType dtype, std::uint64_t seed, double scale = 1) {
  return test::random_tensor<double>(shape, seed, scale).to(dtype);
}

Tensor filled(double value) {
  Tensor x = Tensor::empty({1, 2, 3}, DType::kF32);
  kernels::fill(x, value);
  return x;
}

AttentionInputs inputs_of(const PartCase& c, DType dtype) {
  constexpr std::int64_t kWidth = 8, kValues = 20;
  const std::int64_t b = c.batch, keys = c.keys;
  AttentionInputs in;
  in.q_near = random_of({b, c.queries, kWidth}, dtype, 1, c.spread);
  in.k_near = random_of({b, keys, kWidth}, dtype, 2, c.spread);
  if (c.plan.has_far()) {
    in.q_left = random_of({b, c.queries, kWidth}, dtype, 3, c.spread);
    in.k_left = random_of({b, keys, kWidth}, dtype, 4, c.spread);
    in.q_right = random_of({b, c.queries, kWidth}, dtype, 5, c.spread);
    in.k_right = random_of({b, keys, kWidth}, dtype, 6, c.spread);
  }
  in.v = random_of({b, keys, kValues}, dtype, 7);
  if (c.padding) {
    std::vector<std::int32_t> mask(static_cast<std::size_t>(b * keys), 1);
    // The last sequence ends early; the first has a hole as wide as two windows of 10, and the middle one, where there are
    // three, no token.
    std::fill(mask.end() - 70, mask.end(), 0);
    std::fill(mask.begin() + 60, mask.begin() + 85, 0);
    if (b == 3) std::fill(mask.begin() + keys, mask.begin() + 2 * keys, 0);
    in.key_mask = Tensor::from(mask, {b, keys});
  }
  if (c.queries < keys) {
    std::vector<std::int32_t> rows;
    for (std::int64_t n = 0; n < b * c.queries; ++n) {
      const std::int64_t r = n % c.queries;
      rows.push_back(r + 1 < c.queries ? static_cast<std::int32_t>(r * (keys / c.queries)) : -1);
    }
    in.rows = Tensor::from(rows, {b, c.queries});
  }
  return in;
}

Tensor columns(const Tensor& x, std::int64_t begin, std::int64_t end) {
  if (!x.defined()) return {};
  Tensor part = Tensor::empty({x.dim(0), end - begin, x.dim(2)}, x.dtype());
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    const Tensor from = x.segment((b * x.dim(1) + begin) * x.dim(2), {end - begin, x.dim(2)});
    kernels::convert(from, part.segment(b * (end - begin) * x.dim(2), {end - begin, x.dim(2)}));
  }
  return part;
}

AttentionInputs part_of(const AttentionInputs& in, std::int64_t begin, std::int64_t end) {
  AttentionInputs part = in;
  for (Tensor AttentionInputs::*keys :
       {&AttentionInputs::k_near, &AttentionInputs::k_left, &AttentionInputs::k_right, &AttentionInputs::v}) {
    part.*keys = columns(in.*keys, begin, end);
  }
  part.first_key = begin;
  part.length = in.k_near.dim(1);
  return part;
}

AttentionGradients room_for(const AttentionInputs& in) {
  const auto like = [](const Tensor& x) { return x.defined() ? Tensor::empty(x.shape(), x.dtype()) : Tensor(); };
  return {like(in.q_near), like(in.k_near), like(in.q_left), like(in.k_left), like(in.q_right), like(in.k_right), like(in.v)};
}

DropoutSpec dropout_of(const PartCase& c) {
  DropoutSpec spec;
  spec.rate = c.dropout;
  spec.key = {3, 1, Site::kAttentionDropout, 2};
  spec.first_sample = 5;
  spec.length = c.keys;
  return spec;
}

/// max |a - b| / max |b|
double difference(const Tensor& a, const Tensor& b) {
  double most = 0, scale = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a.at(i) - b.at(i));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return scale > 0 ? most / scale : most;
}

void expect_merged(const PartCase& c, DType dtype, double tolerance) {
  const AttentionInputs in = inputs_of(c, dtype);
  const DropoutSpec dropout = dropout_of(c);
  AttentionPlan plan = c.plan;
  plan.skip = AttentionPlan::default_skip(dtype);
  reset_attention_counters();
  const Shape shape{c.batch, c.queries, in.v.dim(2)};
  Tensor whole = Tensor::empty(shape, dtype), sums = Tensor::empty({c.batch, c.queries}, DType::kF64);
  kernels::attention(in, plan, dropout, whole, sums);
  const Tensor dout = random_of(shape, dtype, 8);
  const AttentionGradients all = room_for(in);
  kernels::attention_backward(in, plan, dropout, whole, sums, dout, all);

  Tensor out = Tensor::empty(shape, dtype), out_sums = Tensor::empty({c.batch, c.queries}, DType::kF64);
  Tensor dq = Tensor::zeros(in.q_near.shape(), dtype);
  const std::vector<std::int64_t> bounds{0, c.keys / 4, c.keys / 3, c.keys * 17 / 20, c.keys};
  // From the last part to the first: each row must bear to see nothing at first, and later.
  for (std::size_t p = bounds.size() - 1; p-- > 0;) {
    const AttentionInputs part = part_of(in, bounds[p], bounds[p + 1]);
    if (p + 2 == bounds.size()) {
      kernels::attention(part, plan, dropout, out, out_sums);
      continue;
    }
    Tensor other = Tensor::empty(shape, dtype), other_sums = Tensor::empty({c.batch, c.queries}, DType::kF64);
    kernels::attention(part, plan, dropout, other, other_sums);
    kernels::merge_attention(other, other_sums, out, out_sums);
  }
  EXPECT_LE(difference(out, whole), tolerance);
  for (std::int64_t i = 0; i < sums.size(); ++i) {
    if (std::isinf(sums.at(i))) {
      EXPECT_EQ(out_sums.at(i), sums.at(i)) << i;
    } else {
      EXPECT_NEAR(out_sums.at(i), sums.at(i), tolerance * std::max(1.0, std::abs(sums.at(i)))) << i;
    }
  }
  for (std::size_t p = 0; p + 1 < bounds.size(); ++p) {
    const AttentionInputs part = part_of(in, bounds[p], bounds[p + 1]);
    const AttentionGradients d = room_for(part);
    kernels::attention_backward(part, plan, dropout, out, out_sums, dout, d);
    kernels::add(dq, d.q_near, dq);
    EXPECT_LE(difference(d.v, columns(all.v, bounds[p], bounds[p + 1])), tolerance) << "dv of part " << p;
    EXPECT_LE(difference(d.k_near, columns(all.k_near, bounds[p], bounds[p + 1])), tolerance) << "dk of part " << p;
    if (!plan.has_far()) continue;
    EXPECT_LE(difference(d.k_left, columns(all.k_left, bounds[p], bounds[p + 1])), 2 * tolerance) << "dk_left of part " << p;
    EXPECT_LE(difference(d.k_right, columns(all.k_right, bounds[p], bounds[p + 1])), 2 * tolerance) << "dk_right of part " << p;
  }
  EXPECT_LE(difference(dq, all.q_near), tolerance);
  if (c.keys > 1000) {
    EXPECT_GT(attention_counters().skipped_share(), 0.5);
  }
}

std::vector<PartCase> cases() {
  std::vector<PartCase> all;
  const auto add = [&](const char* name) -> PartCase& {
    all.push_back({name, {}});
    return all.back();
  };
  add("full");
  add("sharp").spread = 8;  // logits of hundreds
  PartCase& padded = add("padded");
  padded.batch = 3;
  padded.padding = true;
  PartCase& window = add("window");
  window.batch = 3;
  window.padding = true;  // rows in the hole see nothing at all
  window.plan.window = 10;
  PartCase& sinks = add("sinks");
  sinks.plan.window = 10;
  sinks.plan.sinks = 41;  // into the second part
  PartCase& rows = add("rows");
  rows.plan.window = 10;
  rows.plan.rows = 40;
  rows.queries = 30;
  PartCase& far = add("far");
  far.plan.near_limit = 20;
  far.dropout = 0.2;
  PartCase& bias = add("bias");
  bias.plan.slope_left = 0.1;
  bias.plan.slope_right = 0.2;
  PartCase& law = add("law");
  for (int distance = 0; distance < 150; ++distance) {
    law.plan.distance_scale.push_back(1 + 0.1 * std::log1p(distance));
    law.plan.distance_shift.push_back(-0.3 * std::log1p(distance));
  }
  add("diagonal").plan.mask_diagonal = true;
  PartCase& alone = add("alone");  // nobody sees a token: all weights are alike
  alone.plan.mask_diagonal = true;
  alone.plan.window = 0;
  PartCase& dropped = add("dropout");
  dropped.dropout = 0.3;
  dropped.queries = 50;
  // Parts wide enough for keys to be left out, and logits that leave few.
  const auto add_long = [&](const char* name) -> PartCase& {
    PartCase& c = add(name);
    c.keys = c.queries = 1200;
    c.batch = 1;
    c.spread = 8;
    return c;
  };
  add_long("long").dropout = 0.2;
  PartCase& long_window = add_long("long window");
  long_window.padding = true;
  long_window.plan.window = 300;
  long_window.plan.sinks = 5;
  PartCase& long_far = add_long("long far");
  long_far.plan.near_limit = 200;
  return all;
}

TEST(AttentionParts, MergeIntoAttentionOfAllKeys) {
  for (const PartCase& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_merged(c, DType::kF64, 1e-13);
    // Logits of hundreds are themselves rounded by 3e-5, and not alike by products of other shapes.
    expect_merged(c, DType::kF32, c.spread > 1 ? 3e-5 : 2e-6);
  }
}

TEST(AttentionParts, NotANumberStaysOne) {
  const Tensor part = filled(1);
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor nan = Tensor::from(std::vector<double>{NAN, none}, {1, 2});
  const Tensor fine = Tensor::from(std::vector<double>{0, none}, {1, 2});
  for (const auto& [ours, theirs] : {std::pair{nan, fine}, std::pair{fine, nan}}) {
    Tensor out = filled(2), sums = ours.clone();
    kernels::merge_attention(part, theirs, out, sums);
    EXPECT_TRUE(std::isnan(sums.at(0)));
    EXPECT_TRUE(std::isnan(out.at(0)));
    // Two times nothing is nothing.
    EXPECT_EQ(sums.at(1), none);
    EXPECT_EQ(out.at(3), 2);
  }
}

}  // namespace
}  // namespace gau
