// Kernels over elements and rows against plain loops, in float and double.
#include "framework/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_close;
using test::indices;
using test::kTolerance;
using test::random_indices;
using test::random_tensor;
using test::same_bits;

template <class T>
class Kernels : public ::testing::Test {
 protected:
  static constexpr DType kType = DTypeOf<T>::value;
  static Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); }
};
using RealTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Kernels, RealTypes);

// f(i) for every element, as double.
template <class F>
std::vector<double> elements(std::int64_t n, const F& f) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(f(i));
  return values;
}

TYPED_TEST(Kernels, Elements) {
  const Tensor a = random_tensor<TypeParam>({41, 1000}, 1), b = random_tensor<TypeParam>({41, 1000}, 2);
  Tensor out = this->like(a);
  const std::int64_t n = a.size();
  kernels::add(a, b, out);
  expect_close(out, elements(n, [&](auto i) { return a.at(i) + b.at(i); }), kTolerance<TypeParam>);
  kernels::multiply(a, b, out);
  expect_close(out, elements(n, [&](auto i) { return a.at(i) * b.at(i); }), kTolerance<TypeParam>);
  kernels::scale(a, -2.5, out);
  expect_close(out, elements(n, [&](auto i) { return -2.5 * a.at(i); }), kTolerance<TypeParam>);
  kernels::fill(out, 0.75);
  expect_close(out, std::vector<double>(static_cast<std::size_t>(n), 0.75), 0);
}

TYPED_TEST(Kernels, ElementsInPlace) {
  const Tensor a = random_tensor<TypeParam>({100, 300}, 1), b = random_tensor<TypeParam>({100, 300}, 2);
  Tensor sum = this->like(a), left = a.clone(), right = b.clone();
  kernels::add(a, b, sum);
  kernels::add(left, b, left);
  kernels::add(a, right, right);
  EXPECT_TRUE(same_bits(left, sum));
  EXPECT_TRUE(same_bits(right, sum));
  Tensor twice = a.clone();
  kernels::add(twice, twice, twice);
  Tensor doubled = this->like(a);
  kernels::scale(a, 2, doubled);
  EXPECT_TRUE(same_bits(twice, doubled));
}

TEST(Convert, RoundsToNearestEven) {
  // 1 + 2^-8 lies between two neighbours in bf16 and goes to the even one; 1 + 3 · 2^-8 goes up.
  const std::vector<float> values{1,
                                  1 + 0x1p-8F,
                                  1 + 0x1p-8F + 0x1p-20F,
                                  1 + 3 * 0x1p-8F,
                                  -1.5F,
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::max()};
  const Tensor narrow = Tensor::empty({7}, DType::kBF16);
  kernels::convert(Tensor::from(values, {7}), narrow);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> expected{1, 1, 1 + 0x1p-7, 1 + 0x1p-6, -1.5, infinity, infinity};
  for (std::int64_t i = 0; i < 7; ++i) EXPECT_EQ(narrow.at(i), expected[static_cast<std::size_t>(i)]) << i;
  const Tensor nan = Tensor::from(std::vector<float>{std::bit_cast<float>(0x7F800001U)}, {1});
  EXPECT_TRUE(std::isnan(nan.to(DType::kBF16).item())) << "a NaN in the low bits alone must not become infinity";
}

TEST(Convert, EveryPair) {
  const std::vector<DType> types{DType::kF32, DType::kF64, DType::kBF16};
  const Tensor source = Tensor::from(std::vector<double>{0.5, -3, 1024}, {3});
  for (const DType from : types) {
    for (const DType to : types) {
      const Tensor out = Tensor::empty({3}, to);
      kernels::convert(source.to(from), out);
      expect_close(out, {0.5, -3, 1024}, 0);
    }
  }
}

TYPED_TEST(Kernels, Sums) {
  for (const std::int64_t n : {0, 1, 15, 17, 5000, 100'003}) {
    const Tensor a = random_tensor<TypeParam>({n}, 1), b = random_tensor<TypeParam>({n}, 2);
    double sum = 0, squares = 0, dot = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += a.at(i);
      squares += a.at(i) * a.at(i);
      dot += a.at(i) * b.at(i);
    }
    EXPECT_NEAR(kernels::sum(a), sum, 1e-9 * (1 + squares));
    EXPECT_NEAR(kernels::sum_of_squares(a), squares, 1e-12 * (1 + squares));
    EXPECT_NEAR(kernels::dot(a, b), dot, 1e-9 * (1 + squares));
  }
}

TYPED_TEST(Kernels, FirstNonFinite) {
  constexpr std::int64_t n = 100'000;
  Tensor x = random_tensor<TypeParam>({n}, 1);
  x.data<TypeParam>()[3] = std::numeric_limits<TypeParam>::max();
  x.data<TypeParam>()[4] = std::numeric_limits<TypeParam>::denorm_min();
  EXPECT_EQ(kernels::first_non_finite(x), -1);
  EXPECT_EQ(kernels::first_non_finite(Tensor::empty({0}, x.dtype())), -1);
  x.data<TypeParam>()[99'999] = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_EQ(kernels::first_non_finite(x), 99'999);
  x.data<TypeParam>()[40'001] = -std::numeric_limits<TypeParam>::infinity();
  EXPECT_EQ(kernels::first_non_finite(x), 40'001);
}

TYPED_TEST(Kernels, ScaleRowsAndColumns) {
  const Tensor x = random_tensor<TypeParam>({3, 50, 130}, 1);
  const Tensor by_row = random_tensor<TypeParam>({150}, 2), by_column = random_tensor<TypeParam>({130}, 3);
  Tensor out = this->like(x);
  kernels::scale_rows(x, by_row, out);
  expect_close(out, elements(x.size(), [&](auto i) { return x.at(i) * by_row.at(i / 130); }), kTolerance<TypeParam>);
  Tensor in_place = x.clone();
  kernels::scale_rows(in_place, by_row, in_place);
  EXPECT_TRUE(same_bits(in_place, out));
  kernels::scale_columns(x, by_column, out);
  expect_close(out, elements(x.size(), [&](auto i) { return x.at(i) * by_column.at(i % 130); }), kTolerance<TypeParam>);
  in_place = x.clone();
  kernels::scale_columns(in_place, by_column, in_place);
  EXPECT_TRUE(same_bits(in_place, out));
}

TYPED_TEST(Kernels, ColumnDot) {
  for (const std::int64_t rows : {0, 1, 1000}) {
    const Tensor a = random_tensor<TypeParam>({rows, 96}, 1), b = random_tensor<TypeParam>({rows, 96}, 2);
    std::vector<double> expected(96, 0.0);
    for (std::int64_t i = 0; i < a.size(); ++i) expected[static_cast<std::size_t>(i % 96)] += a.at(i) * b.at(i);
    Tensor out = Tensor::empty({96}, a.dtype());
    kernels::column_dot(a, b, out);
    expect_close(out, expected, kTolerance<TypeParam>);
  }
}

TYPED_TEST(Kernels, GatherAndScatterRows) {
  const Tensor x = random_tensor<TypeParam>({10, 7}, 1);
  const Tensor rows = indices({3, -1, 0, 9, -1});
  Tensor picked = Tensor::empty({5, 7}, x.dtype());
  kernels::gather_rows(x, rows, picked);
  expect_close(picked,
               elements(35,
                        [&](auto i) {
                          const std::int32_t row = rows.data<std::int32_t>()[i / 7];
                          return row < 0 ? 0.0 : x.at(row * 7 + i % 7);
                        }),
               0);
  Tensor placed = Tensor::empty({10, 7}, x.dtype());
  kernels::fill(placed, 5);
  kernels::scatter_rows(picked, rows, placed);
  expect_close(placed,
               elements(70,
                        [&](auto i) {
                          const std::int64_t row = i / 7;
                          return row == 3 || row == 0 || row == 9 ? x.at(i) : 0.0;
                        }),
               0);
  Tensor none = Tensor::empty({0, 7}, x.dtype());
  kernels::gather_rows(x, Tensor::empty({0}, DType::kI32), none);
  // Repeated rows may be gathered.
  Tensor twice = Tensor::empty({2, 7}, x.dtype());
  kernels::gather_rows(x, indices({4, 4}), twice);
  EXPECT_EQ(twice.at(0), twice.at(7));
}

// x rotated by the angles of the table, element by element.
template <class T>
std::vector<double> rotated(const Tensor& x, const std::function<std::int64_t(std::int64_t, std::int64_t)>& table_row,
                            const RotaryTable& table, double sign) {
  std::vector<double> result(static_cast<std::size_t>(x.size()));
  const std::int64_t columns = x.columns(), pairs = columns / 2;
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    for (std::int64_t r = 0; r < x.dim(1); ++r) {
      const std::int64_t row = table_row(b, r);
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t at = (b * x.dim(1) + r) * columns + 2 * i;
        const double c = row < 0 ? 1 : table.cos.at(row * pairs + i), s = row < 0 ? 0 : sign * table.sin.at(row * pairs + i);
        result[static_cast<std::size_t>(at)] = x.at(at) * c - x.at(at + 1) * s;
        result[static_cast<std::size_t>(at + 1)] = x.at(at) * s + x.at(at + 1) * c;
      }
    }
  }
  return result;
}

TYPED_TEST(Kernels, Rotate) {
  using T = TypeParam;
  const Tensor x = random_tensor<T>({2, 5, 6}, 1);
  const RotaryTable by_position{random_tensor<T>({9, 3}, 2), random_tensor<T>({9, 3}, 3)};
  const RotaryTable constant{random_tensor<T>({1, 3}, 4), random_tensor<T>({1, 3}, 5)};
  const RotaryTable by_sample{random_tensor<T>({2, 9, 3}, 6), random_tensor<T>({2, 9, 3}, 7)};
  const Tensor positions = indices({8, 0, -1, 3, 3, 1, 2, 4, -1, 7});
  const auto given = [&](std::int64_t b, std::int64_t r) { return std::int64_t{positions.data<std::int32_t>()[b * 5 + r]}; };
  Tensor out = this->like(x);
  for (const bool inverse : {false, true}) {
    const double sign = inverse ? -1 : 1;
    kernels::rotate(x, by_position, {}, inverse, out);
    expect_close(out,
                 rotated<T>(
                     x, [](auto, auto r) { return r; }, by_position, sign),
                 kTolerance<T>);
    kernels::rotate(x, by_position, positions, inverse, out);
    expect_close(out, rotated<T>(x, given, by_position, sign), kTolerance<T>);
    kernels::rotate(x, constant, {}, inverse, out);
    expect_close(out,
                 rotated<T>(
                     x, [](auto, auto) { return std::int64_t{0}; }, constant, sign),
                 kTolerance<T>);
    kernels::rotate(x, constant, positions, inverse, out);
    expect_close(out,
                 rotated<T>(
                     x, [&](auto b, auto r) { return std::min(given(b, r), std::int64_t{0}); }, constant, sign),
                 kTolerance<T>);
    kernels::rotate(x, by_sample, {}, inverse, out);
    expect_close(out,
                 rotated<T>(
                     x, [](auto b, auto r) { return b * 9 + r; }, by_sample, sign),
                 kTolerance<T>);
    kernels::rotate(x, by_sample, positions, inverse, out);
    expect_close(out,
                 rotated<T>(
                     x, [&](auto b, auto r) { return given(b, r) < 0 ? -1 : b * 9 + given(b, r); }, by_sample, sign),
                 kTolerance<T>);
  }
}

TYPED_TEST(Kernels, RotateInverseIsTheTranspose) {
  using T = TypeParam;
  // <R x, y> = <x, Rᵀ y>, for a table of any magnitude.
  const Tensor x = random_tensor<T>({3, 8, 10}, 1), y = random_tensor<T>({3, 8, 10}, 2);
  const RotaryTable table{random_tensor<T>({8, 5}, 3, 2), random_tensor<T>({8, 5}, 4, 2)};
  Tensor rx = this->like(x), ry = this->like(x);
  kernels::rotate(x, table, {}, false, rx);
  kernels::rotate(y, table, {}, true, ry);
  EXPECT_NEAR(kernels::dot(rx, y), kernels::dot(x, ry), 100 * kTolerance<T>);
}

}  // namespace
}  // namespace gau
