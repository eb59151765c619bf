// FlatParameters: all parameters of a model in one tensor of values, all gradients in another, named segments of both.
//
// All-reduce, norm, clipping, optimizer and checkpoint are then single calls over one buffer. Segments lie in the order in
// which they were added, so the layout is a function of the model's configuration alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "framework/tensor.h"

namespace gau {

struct Parameter {
  std::string name;  ///< the name in Hugging Face's layout of GAU-α
  Shape shape;
  std::int64_t offset = 0;  ///< first element in the flat buffers
  Variable variable;        ///< value and gradient are segments of the flat buffers
};

class FlatParameters {
 public:
  /// Before allocate(): adds a segment. Names are unique.
  void add(const std::string& name, const Shape& shape);
  /// Makes both buffers (gradients zeroed) and the variables.
  void allocate(DType dtype);

  const std::vector<Parameter>& list() const { return list_; }
  /// Throws Error(kData) for a name that is not here.
  const Parameter& find(const std::string& name) const;
  bool contains(const std::string& name) const;
  std::int64_t size() const { return size_; }
  Tensor& values() { return values_; }
  const Tensor& values() const { return values_; }
  Tensor& gradients() { return gradients_; }
  const Tensor& gradients() const { return gradients_; }
  void zero_gradients();
  /// Gradients go into `flat`, of size() elements, from now on: gradients() itself or another buffer. What is there need not be
  /// zeroed, since the first gradient of a parameter takes its place; settle_gradients() zeroes those of parameters that got
  /// none.
  void restart_gradients(const Tensor& flat);
  void settle_gradients();

 private:
  std::vector<Parameter> list_;
  std::int64_t size_ = 0;
  Tensor values_;
  Tensor gradients_;
};

}  // namespace gau
