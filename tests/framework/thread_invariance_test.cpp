// Every kernel gives the same bits with 1, 2 and 4 threads.
#include <gtest/gtest.h>

#include <vector>

#include "framework/kernels.h"
#include "tests/framework/test_tensors.h"

namespace gau {
namespace {

using test::expect_thread_invariant;
using test::random_indices;
using test::random_tensor;

using Outputs = std::vector<Tensor>;

template <class T>
class ThreadInvariance : public ::testing::Test {};
using RealTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ThreadInvariance, RealTypes);

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); }

DropoutSpec dropout_spec() {
  DropoutSpec spec;
  spec.rate = 0.2;
  spec.length = 64;
  return spec;
}

TYPED_TEST(ThreadInvariance, Reductions) {
  using T = TypeParam;
  const Tensor a = random_tensor<T>({3001, 96}, 1), b = random_tensor<T>({3001, 96}, 2);
  expect_thread_invariant("sums", [&] {
    return Outputs{Tensor::from(std::vector<double>{kernels::sum(a), kernels::sum_of_squares(a), kernels::dot(a, b)}, {3})};
  });
  expect_thread_invariant("column_dot", [&] {
    Tensor out = Tensor::empty({96}, a.dtype());
    kernels::column_dot(a, b, out);
    return Outputs{out};
  });
  const Tensor ids = random_indices({3001}, 3, 0, 50), types = random_indices({3001}, 4, 0, 2);
  expect_thread_invariant("embed_backward", [&] {
    Tensor dword = Tensor::zeros({50, 96}, a.dtype()), dtype_table = Tensor::zeros({2, 96}, a.dtype());
    kernels::embed_backward(a, ids, types, 0, dword, dtype_table);
    return Outputs{dword, dtype_table};
  });
}

TYPED_TEST(ThreadInvariance, RowKernels) {
  using T = TypeParam;
  const Tensor x = random_tensor<T>({1024, 96}, 1), y = random_tensor<T>({1024, 96}, 2);
  expect_thread_invariant("norms", [&] {
    Tensor out = like(x), inverse = Tensor::empty({1024}, x.dtype()), dx = like(x), dresidual = like(x);
    kernels::residual_rms_norm(y, x, dropout_spec(), 1e-12, out, inverse);
    kernels::residual_rms_norm_backward(out, inverse, y, dropout_spec(), dresidual, dx);
    Tensor unit = like(x), norm = like(inverse), dunit = like(x);
    kernels::normalize_rows(x, unit, norm);
    kernels::normalize_rows_backward(x, norm, y, dunit);
    return Outputs{out, inverse, dx, dresidual, unit, norm, dunit};
  });
  expect_thread_invariant("swish", [&] {
    Tensor u = Tensor::empty({1024, 40}, x.dtype()), v = like(u), z = Tensor::empty({1024, 16}, x.dtype()), dh = like(x);
    kernels::swish_split(x, u, v, z);
    kernels::swish_split_backward(x, u, v, z, dh);
    return Outputs{u, v, z, dh};
  });
  expect_thread_invariant("head_rows", [&] {
    HeadTransform how;
    how.gamma = random_tensor<T>({96}, 5);
    how.normalize = true;
    how.tables.resize(1);
    const Tensor z = x.reshaped({4, 256, 96});
    Tensor q = like(z), dz = like(z), dgamma = like(how.gamma);
    kernels::head_rows(z, how, {q});
    kernels::head_rows_backward(z, how, {y.reshaped({4, 256, 96})}, dz, dgamma);
    return Outputs{q, dz, dgamma};
  });
  const Tensor labels = random_indices({1024}, 3, -1, 96);
  expect_thread_invariant("cross_entropy", [&] {
    Tensor loss = Tensor::empty({1024}, DType::kF64), predicted = Tensor::empty({1024}, DType::kI32);
    Tensor kept = Tensor::empty({1024}, x.dtype()), dx = like(x);
    kernels::cross_entropy(x, labels, loss, predicted, kept);
    kernels::cross_entropy_backward(x, labels, kept, 1, dx);
    return Outputs{loss, predicted, kept, dx};
  });
}

TYPED_TEST(ThreadInvariance, ElementKernels) {
  using T = TypeParam;
  const Tensor x = random_tensor<T>({100'003}, 1), y = random_tensor<T>({100'003}, 2);
  expect_thread_invariant("elements", [&] {
    Tensor sum = like(x), product = like(x), scaled = like(x), narrow = Tensor::empty({100'003}, DType::kBF16);
    kernels::add(x, y, sum);
    kernels::multiply(x, y, product);
    kernels::scale(x, 0.3, scaled);
    kernels::convert(x, narrow);
    return Outputs{sum, product, scaled, narrow};
  });
  expect_thread_invariant("optimizers", [&] {
    AdamStep step;
    step.learning_rate = 0.1;
    Tensor value = x.clone(), first = Tensor::zeros({100'003}, x.dtype()), second = first.clone(), update = like(x);
    kernels::adamw(step, y, value, first, second);
    kernels::lamb_update(step, y, value, first, second, update);
    kernels::apply_update(0.1, update, value);
    return Outputs{value, first, second, update};
  });
}

}  // namespace
}  // namespace gau
