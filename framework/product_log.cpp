#include "framework/product_log.h"

#include <algorithm>
#include <utility>

#include "framework/kernels.h"

namespace gau {

namespace {

thread_local ProductLog* current = nullptr;

// Elements from the first that a view reaches to behind the last.
std::int64_t extent(const MatrixView& view) {
  const std::int64_t stored_rows = view.transposed ? view.cols : view.rows;
  const std::int64_t stored_cols = view.transposed ? view.rows : view.cols;
  return (view.batch - 1) * view.batch_stride + (stored_rows - 1) * view.row_stride + stored_cols;
}

MatrixView without_data(MatrixView view) {
  view.tensor = Tensor();
  view.offset = 0;
  return view;
}

Tensor pool_for(const std::vector<LoggedProduct>& products, const MatrixView LoggedProduct::*operand) {
  std::int64_t most = 1;
  for (const LoggedProduct& product : products) most = std::max(most, extent(product.*operand));
  constexpr std::int64_t kLeastElements = 8 << 20;
  const DType dtype = products.empty() ? DType::kF32 : products.front().dtype;
  return Tensor::zeros({std::max(2 * most, kLeastElements)}, dtype);
}

}  // namespace

double LoggedProduct::operations() const {
  return 2.0 * static_cast<double>(c.batch) * static_cast<double>(c.rows) * static_cast<double>(c.cols) *
         static_cast<double>(a.cols);
}

ProductLog::ProductLog() { current = this; }
ProductLog::~ProductLog() { current = nullptr; }

void ProductLog::note(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate) {
  if (!current) return;
  current->products_.push_back({without_data(a), without_data(b), without_data(c), alpha, accumulate, c.tensor.dtype()});
}

ProductReplay::ProductReplay(std::vector<LoggedProduct> products)
    : products_(std::move(products)),
      a_(pool_for(products_, &LoggedProduct::a)),
      b_(pool_for(products_, &LoggedProduct::b)),
      c_(pool_for(products_, &LoggedProduct::c)) {}

MatrixView ProductReplay::placed(const MatrixView& view, Tensor pool, std::int64_t& next) const {
  constexpr std::int64_t kAlignment = 16;
  MatrixView result = view;
  const std::int64_t need = extent(view);
  if (next + need > pool.size()) next = 0;
  result.offset = next;
  result.tensor = std::move(pool);
  next = (next + need + kAlignment - 1) / kAlignment * kAlignment;
  return result;
}

void ProductReplay::run() {
  std::int64_t next_a = 0, next_b = 0, next_c = 0;
  for (const LoggedProduct& product : products_) {
    backend().gemm(placed(product.a, a_, next_a), placed(product.b, b_, next_b), placed(product.c, c_, next_c), product.alpha,
                   product.accumulate);
  }
}

double ProductReplay::operations() const {
  double sum = 0;
  for (const LoggedProduct& product : products_) sum += product.operations();
  return sum;
}

}  // namespace gau
