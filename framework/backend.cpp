// Views of whole tensors as matrices.
#include "framework/backend.h"

#include <utility>

#include "framework/error.h"

namespace gau {

MatrixView MatrixView::of(const Tensor& tensor, bool transposed) {
  MatrixView view;
  view.tensor = tensor;
  view.rows = tensor.rows();
  view.cols = tensor.columns();
  view.row_stride = tensor.columns();
  view.transposed = transposed;
  if (transposed) std::swap(view.rows, view.cols);
  return view;
}

MatrixView MatrixView::batched(const Tensor& tensor, bool transposed) {
  check(tensor.shape().rank() == 3, ExitCode::kData, "a batch of matrices has 3 dimensions, not the shape {}",
        tensor.shape().str());
  MatrixView view = of(tensor.reshaped({tensor.dim(0) * tensor.dim(1), tensor.dim(2)}), transposed);
  (transposed ? view.cols : view.rows) = tensor.dim(1);
  view.batch = tensor.dim(0);
  view.batch_stride = tensor.dim(1) * tensor.dim(2);
  return view;
}

}  // namespace gau
