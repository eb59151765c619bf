// Tensor: contiguous, row-major, reference-counted, at most four dimensions. It holds memory and knows its shape; it does no
// arithmetic. Copies share storage. The only views are a segment of a larger tensor and another shape of the same elements.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/dtype.h"

namespace gau {

/// Dimensions of a tensor, at most four. Named, from the outside in: B batch, L length, H hidden, E intermediate, D key, V vocabulary.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  /// Product of the dimensions; 1 for rank 0.
  std::int64_t size() const;
  /// The last dimension (1 for rank 0), and the product of all others: a tensor seen as rows × columns.
  std::int64_t columns() const;
  std::int64_t rows() const;
  /// "[8, 64, 768]"
  std::string str() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, 4> dims_{};
  int rank_ = 0;
};

class Tensor {
 public:
  /// An undefined tensor: holds nothing, stands for "absent".
  Tensor() = default;

  /// Contents are unspecified (NaN in debug builds).
  static Tensor empty(const Shape& shape, DType dtype);
  static Tensor zeros(const Shape& shape, DType dtype);
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int axis) const { return shape_[axis]; }
  std::int64_t size() const { return shape_.size(); }
  std::int64_t rows() const { return shape_.rows(); }
  std::int64_t columns() const { return shape_.columns(); }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype_); }

  /// The elements; T must be the tensor's type (checked in every build).
  template <class T>
  T* data();
  template <class T>
  const T* data() const;
  template <class T>
  std::span<T> span() {
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  void* raw() { return raw_; }
  const void* raw() const { return raw_; }

  /// The `shape.size()` elements from element `offset` on, sharing storage.
  Tensor segment(std::int64_t offset, const Shape& shape) const;
  /// The same elements under another shape of equal size, sharing storage.
  Tensor reshaped(const Shape& shape) const;
  /// A copy with its own storage.
  Tensor clone() const;
  /// Converted to another floating type (itself when it has that type already).
  Tensor to(DType dtype) const;
  /// Element `index` as double, whatever the type: for tests, logs and single values.
  double at(std::int64_t index) const;
  /// The single element of a tensor of size 1.
  double item() const;
  /// True when both share storage, the same first element included.
  bool same_storage(const Tensor& other) const { return raw_ == other.raw_; }

 private:
  std::shared_ptr<void> storage_;
  void* raw_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace gau
