// The kernels of a GAU layer: swish, norms, dropout. Values against plain loops, gradients against differences in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_close;
using test::indices;
using test::kTolerance;
using test::random_tensor;
using test::same_bits;

template <class T>
class GauKernels : public ::testing::Test {};
using RealTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GauKernels, RealTypes);

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); }

// d/dx of <weights, f(x)> by central differences over a millionth of the magnitude of x; f returns its output.
std::vector<double> differences(const Tensor& x, const Tensor& weights, const std::function<Tensor(const Tensor&)>& f,
                                double magnitude = 1) {
  std::vector<double> slopes;
  const double h = 1e-6 * magnitude;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    Tensor moved = x.clone();
    double* const value = moved.data<double>() + i;
    const double before = *value;
    *value = before + h;
    const double above = kernels::dot(f(moved), weights);
    *value = before - h;
    slopes.push_back((above - kernels::dot(f(moved), weights)) / (2 * h));
  }
  return slopes;
}

double swish(double x) { return x / (1 + std::exp(-x)); }
double swish_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

TYPED_TEST(GauKernels, SwishSplit) {
  using T = TypeParam;
  constexpr std::int64_t rows = 37;
  for (const auto& widths :
       std::vector<std::array<std::int64_t, 3>>{{48, 48, 16}, {0, 48, 16}, {48, 0, 0}, {48, 0, 16}, {0, 0, 7}}) {
    const std::int64_t columns = widths[0] + widths[1] + widths[2];
    const Tensor h = random_tensor<T>({rows, columns}, 1, 10);
    std::array<Tensor, 3> parts, gradients;
    for (std::size_t p = 0; p < 3; ++p) {
      if (widths[p] == 0) continue;
      parts[p] = Tensor::empty({rows, widths[p]}, h.dtype());
      gradients[p] = random_tensor<T>({rows, widths[p]}, 5 + p);
    }
    kernels::swish_split(h, parts[0], parts[1], parts[2]);
    Tensor dh = like(h);
    kernels::swish_split_backward(h, gradients[0], gradients[1], gradients[2], dh);
    std::int64_t first = 0;
    for (std::size_t p = 0; p < 3; ++p) {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < widths[p]; ++c) {
          const std::int64_t at = r * columns + first + c, own = r * widths[p] + c;
          const double value = h.at(at);
          ASSERT_NEAR(parts[p].at(own), swish(value), kTolerance<T> * 10);
          ASSERT_NEAR(dh.at(at), gradients[p].at(own) * swish_slope(value), kTolerance<T> * 10);
        }
      }
      first += widths[p];
    }
  }
}

TYPED_TEST(GauKernels, SwishGradientsThatAreAbsentAreZero) {
  using T = TypeParam;
  const Tensor h = random_tensor<T>({4, 10}, 1), dv = random_tensor<T>({4, 3}, 2), dz = random_tensor<T>({4, 2}, 3);
  Tensor dh = like(h);
  kernels::swish_split_backward(h, {}, dv, dz, dh);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) ASSERT_EQ(dh.at(r * 10 + c), 0);
    ASSERT_NEAR(dh.at(r * 10 + 5), dv.at(r * 3) * swish_slope(h.at(r * 10 + 5)), kTolerance<T>);
    ASSERT_NEAR(dh.at(r * 10 + 9), dz.at(r * 2 + 1) * swish_slope(h.at(r * 10 + 9)), kTolerance<T>);
  }
}

TYPED_TEST(GauKernels, SwishOfLargeNumbers) {
  using T = TypeParam;
  const Tensor h = Tensor::from(std::vector<T>{T(1e30), T(-1e30), T(100), T(-100), T(1e4), T(-1e4), T(0)}, {1, 7});
  Tensor z = like(h), dh = like(h);
  kernels::swish_split(h, {}, {}, z);
  expect_close(z, {1e30, 0, 100, 0, 1e4, 0, 0}, 1e-6);
  kernels::swish_split_backward(h, {}, {}, Tensor::from(std::vector<T>(7, T(1)), {1, 7}), dh);
  expect_close(dh, {1, 0, 1, 0, 1, 0, 0.5}, 1e-6);
}

TYPED_TEST(GauKernels, NormalizeRows) {
  using T = TypeParam;
  Tensor x = random_tensor<T>({5, 33}, 1);
  for (std::int64_t c = 0; c < 33; ++c) {
    x.data<T>()[c] = 0;               // a zero row
    x.data<T>()[33 + c] *= T(1e-20);  // its square is no float
    x.data<T>()[66 + c] *= T(1e-8);
    x.data<T>()[99 + c] *= T(1e20);
  }
  Tensor out = like(x), inverse = Tensor::empty({5}, x.dtype());
  kernels::normalize_rows(x, out, inverse);
  for (std::int64_t r = 0; r < 5; ++r) {
    double norm = 0;
    for (std::int64_t c = 0; c < 33; ++c) norm += x.at(r * 33 + c) * x.at(r * 33 + c);
    const double expected = r == 0 ? 0 : 1 / (std::sqrt(norm) + 1e-9);
    ASSERT_NEAR(inverse.at(r), expected, expected * kTolerance<T>);
    for (std::int64_t c = 0; c < 33; ++c) ASSERT_NEAR(out.at(r * 33 + c), x.at(r * 33 + c) * expected, kTolerance<T>);
  }
  Tensor dx = like(x);
  kernels::normalize_rows_backward(x, inverse, random_tensor<T>({5, 33}, 2), dx);
  EXPECT_EQ(kernels::first_non_finite(dx), -1);
  for (std::int64_t c = 0; c < 33; ++c) EXPECT_EQ(dx.at(c), 0);
  for (std::int64_t c = 33; c < 66; ++c) EXPECT_LE(std::abs(dx.at(c)), 3e9);
}

TEST(GauGradients, NormalizeRows) {
  for (const double magnitude : {1e-4, 1.0, 1e3}) {
    const Tensor x = random_tensor<double>({3, 7}, 1, magnitude), weights = random_tensor<double>({3, 7}, 2, magnitude);
    Tensor out = like(x), inverse = Tensor::empty({3}, DType::kF64), dx = like(x);
    kernels::normalize_rows(x, out, inverse);
    kernels::normalize_rows_backward(x, inverse, weights, dx);
    const auto normalized = [](const Tensor& at) {
      Tensor value = like(at), kept = Tensor::empty({3}, DType::kF64);
      kernels::normalize_rows(at, value, kept);
      return value;
    };
    expect_close(dx, differences(x, weights, normalized, magnitude), 1e-7);
  }
}

DropoutSpec dropout_spec(double rate) {
  DropoutSpec spec;
  spec.rate = rate;
  spec.key = {11, 12, Site::kHiddenDropout, 2};
  spec.first_sample = 40;
  spec.length = 4;
  return spec;
}

// The factor of one element, from its definition.
double dropout_factor(const DropoutSpec& spec, std::int64_t flat, std::int64_t column) {
  if (!spec.active()) return 1;
  const auto sample = static_cast<std::uint32_t>(spec.first_sample + static_cast<std::uint64_t>(flat / spec.length));
  const auto words =
      spec.key.draw(sample, static_cast<std::uint32_t>(flat % spec.length), static_cast<std::uint32_t>(column / 8));
  const std::uint32_t word = words[static_cast<std::size_t>(column % 8 / 2)];
  const std::uint32_t bits = column % 2 == 0 ? word & 0xFFFF : word >> 16;
  const auto threshold = static_cast<std::uint32_t>(std::lround(spec.rate * 65536));
  return bits < threshold ? 0 : 65536.0 / (65536.0 - threshold);
}

TYPED_TEST(GauKernels, DropoutIsTheDocumentedMask) {
  using T = TypeParam;
  const Tensor x = random_tensor<T>({12, 150}, 1);
  DropoutSpec spec = dropout_spec(0.3);
  Tensor out = like(x);
  kernels::dropout(x, spec, out);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < x.size(); ++i) expected.push_back(x.at(i) * dropout_factor(spec, i / 150, i % 150));
  expect_close(out, expected, kTolerance<T>);
  Tensor in_place = x.clone();
  kernels::dropout(in_place, spec, in_place);
  EXPECT_TRUE(same_bits(in_place, out));
  // Rows picked out of the tensor keep their mask.
  spec.rows = indices({11, 3, 4});
  Tensor picked = Tensor::empty({3, 150}, x.dtype()), few = Tensor::empty({3, 150}, x.dtype());
  kernels::gather_rows(x, spec.rows, few);
  kernels::dropout(few, spec, picked);
  for (std::int64_t c = 0; c < 150; ++c) {
    ASSERT_EQ(picked.at(c), out.at(11 * 150 + c));
    ASSERT_EQ(picked.at(150 + c), out.at(3 * 150 + c));
    ASSERT_EQ(picked.at(300 + c), out.at(4 * 150 + c));
  }
}

TYPED_TEST(GauKernels, DropoutOfABatchIsThatOfItsParts) {
  using T = TypeParam;
  const Tensor x = random_tensor<T>({12, 20}, 1);
  Tensor whole = like(x), part = Tensor::empty({4, 20}, x.dtype());
  kernels::dropout(x, dropout_spec(0.5), whole);
  DropoutSpec second = dropout_spec(0.5);
  second.first_sample += 1;
  kernels::dropout(x.segment(80, {4, 20}), second, part);
  EXPECT_TRUE(same_bits(part, whole.segment(80, {4, 20})));
}

TYPED_TEST(GauKernels, InactiveDropoutCopies) {
  const Tensor x = random_tensor<TypeParam>({3, 5}, 1);
  Tensor out = like(x);
  kernels::dropout(x, {}, out);
  EXPECT_TRUE(same_bits(x, out));
}

TYPED_TEST(GauKernels, ResidualRmsNorm) {
  using T = TypeParam;
  constexpr double eps = 1e-12;
  const Tensor x = random_tensor<T>({12, 100}, 1, 3), residual = random_tensor<T>({12, 100}, 2, 3);
  for (const double rate : {0.0, 0.25}) {
    for (const bool with_residual : {true, false}) {
      const DropoutSpec spec = dropout_spec(rate);
      Tensor out = like(x), inverse = Tensor::empty({12}, x.dtype());
      kernels::residual_rms_norm(with_residual ? residual : Tensor(), x, spec, eps, out, inverse);
      for (std::int64_t r = 0; r < 12; ++r) {
        std::vector<double> y;
        double squares = 0;
        for (std::int64_t c = 0; c < 100; ++c) {
          y.push_back((with_residual ? residual.at(r * 100 + c) : 0) + x.at(r * 100 + c) * dropout_factor(spec, r, c));
          squares += y.back() * y.back();
        }
        const double expected = 1 / std::sqrt(squares / 100 + eps);
        ASSERT_NEAR(inverse.at(r), expected, kTolerance<T>);
        for (std::int64_t c = 0; c < 100; ++c) {
          ASSERT_NEAR(out.at(r * 100 + c), y[static_cast<std::size_t>(c)] * expected, kTolerance<T>);
        }
      }
    }
  }
}

TYPED_TEST(GauKernels, RmsNormOfZeroIsZero) {
  const Tensor x = Tensor::zeros({2, 6}, DTypeOf<TypeParam>::value);
  Tensor out = like(x), inverse = Tensor::empty({2}, x.dtype()), dx = like(x);
  kernels::residual_rms_norm({}, x, {}, 1e-12, out, inverse);
  expect_close(out, std::vector<double>(12, 0.0), 0);
  kernels::residual_rms_norm_backward(out, inverse, random_tensor<TypeParam>({2, 6}, 1), {}, {}, dx);
  EXPECT_EQ(kernels::first_non_finite(dx), -1);
}

TEST(GauGradients, ResidualRmsNorm) {
  const Tensor x = random_tensor<double>({8, 9}, 1), residual = random_tensor<double>({8, 9}, 2);
  const Tensor weights = random_tensor<double>({8, 9}, 3);
  for (const double rate : {0.0, 0.4}) {
    // A large eps, so that its part in the gradient shows.
    constexpr double eps = 0.1;
    const DropoutSpec spec = dropout_spec(rate);
    const auto norm = [&](const Tensor& beside, const Tensor& at) {
      Tensor value = like(at), kept = Tensor::empty({8}, DType::kF64);
      kernels::residual_rms_norm(beside, at, spec, eps, value, kept);
      return std::pair{value, kept};
    };
    const auto [out, inverse] = norm(residual, x);
    Tensor dx = like(x), dresidual = like(x), alone = like(x);
    kernels::residual_rms_norm_backward(out, inverse, weights, spec, dresidual, dx);
    expect_close(dx, differences(x, weights, [&](const Tensor& at) { return norm(residual, at).first; }), 1e-8);
    expect_close(dresidual, differences(residual, weights, [&](const Tensor& at) { return norm(at, x).first; }), 1e-8);
    kernels::residual_rms_norm_backward(out, inverse, weights, spec, {}, alone);
    EXPECT_TRUE(same_bits(alone, dx));
  }
}

}  // namespace
}  // namespace gau
