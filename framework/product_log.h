// The matrix products of a piece of work, written down so that they can be run again bare: what a step is measured against.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/backend.h"

namespace gau {

/// Shapes, strides and flags of one product, without its data (the tensors of the views are undefined).
struct LoggedProduct {
  MatrixView a, b, c;
  double alpha = 1;
  bool accumulate = false;
  DType dtype = DType::kF32;

  double operations() const;  ///< multiplications and additions
};

/// Notes every product of the backend while it lives; one at a time, products of one thread.
class ProductLog {
 public:
  ProductLog();
  ~ProductLog();
  ProductLog(const ProductLog&) = delete;
  ProductLog& operator=(const ProductLog&) = delete;

  const std::vector<LoggedProduct>& products() const { return products_; }

  /// For backends: notes a product when a log is open.
  static void note(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, bool accumulate);

 private:
  std::vector<LoggedProduct> products_;
};

/// Runs products again on scratch memory that moves through a pool larger than the caches, as operands of a step do.
class ProductReplay {
 public:
  explicit ProductReplay(std::vector<LoggedProduct> products);
  void run();
  double operations() const;

 private:
  MatrixView placed(const MatrixView& view, Tensor pool, std::int64_t& next) const;

  std::vector<LoggedProduct> products_;
  Tensor a_, b_, c_;
};

}  // namespace gau
