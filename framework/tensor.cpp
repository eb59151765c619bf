// Shapes and tensors: checks, storage, views. Conversions between types are the backend's.
#include "framework/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "framework/allocator.h"
#include "framework/backend.h"
#include "framework/error.h"

namespace gau {
namespace {

constexpr int kMaxRank = 4;

// The number of elements must fit with eight bytes each, so that no byte count can overflow later.
void check_size(std::span<const std::int64_t> dims) {
  check(dims.size() <= kMaxRank, ExitCode::kData, "a shape of {} dimensions; at most {} are possible", dims.size(), kMaxRank);
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / 8;
  for (const std::int64_t dim : dims) {
    check(dim >= 0, ExitCode::kData, "a shape with a dimension of {}", dim);
    check(dim <= left, ExitCode::kData, "a shape with more elements than can be addressed (dimension {})", dim);
    left /= std::max<std::int64_t>(dim, 1);
  }
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  check_size(dims);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::size() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

std::int64_t Shape::columns() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }

std::int64_t Shape::rows() const {
  std::int64_t product = 1;
  for (int axis = 0; axis + 1 < rank_; ++axis) product *= (*this)[axis];
  return product;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) text += (axis == 0 ? "" : ", ") + std::to_string((*this)[axis]);
  return text + "]";
}

bool Shape::operator==(const Shape& other) const { return rank_ == other.rank_ && dims_ == other.dims_; }

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  const std::size_t bytes = tensor.bytes();
  tensor.raw_ = allocator::allocate(bytes);
  tensor.storage_ = std::shared_ptr<void>(tensor.raw_, [bytes](void* block) { allocator::release(block, bytes); });
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  std::memset(tensor.raw_, 0, tensor.bytes());
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  check(static_cast<std::int64_t>(values.size()) == shape.size(), ExitCode::kData, "{} values for a tensor of shape {}",
        values.size(), shape.str());
  Tensor tensor = empty(shape, DTypeOf<T>::value);
  if (!values.empty()) std::memcpy(tensor.raw_, values.data(), tensor.bytes());
  return tensor;
}

namespace {

void check_access(bool defined, DType is, DType wanted) {
  check(defined, ExitCode::kData, "the elements of an undefined tensor were asked for, as {}", name_of(wanted));
  check(is == wanted, ExitCode::kData, "a tensor of {} was read as {}", name_of(is), name_of(wanted));
}

}  // namespace

template <class T>
T* Tensor::data() {
  check_access(defined(), dtype_, DTypeOf<T>::value);
  return static_cast<T*>(raw_);
}

template <class T>
const T* Tensor::data() const {
  check_access(defined(), dtype_, DTypeOf<T>::value);
  return static_cast<const T*>(raw_);
}

template Tensor Tensor::from(std::span<const float>, const Shape&);
template Tensor Tensor::from(std::span<const double>, const Shape&);
template Tensor Tensor::from(std::span<const BFloat16>, const Shape&);
template Tensor Tensor::from(std::span<const std::int32_t>, const Shape&);
template float* Tensor::data();
template double* Tensor::data();
template BFloat16* Tensor::data();
template std::int32_t* Tensor::data();
template const float* Tensor::data() const;
template const double* Tensor::data() const;
template const BFloat16* Tensor::data() const;
template const std::int32_t* Tensor::data() const;

Tensor Tensor::segment(std::int64_t offset, const Shape& shape) const {
  check(defined() && offset >= 0 && offset <= size() - shape.size(), ExitCode::kData,
        "a segment of shape {} from element {} of a tensor of shape {}", shape.str(), offset, shape_.str());
  Tensor view = *this;
  view.shape_ = shape;
  view.raw_ = static_cast<char*>(raw_) + static_cast<std::size_t>(offset) * size_of(dtype_);
  return view;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  check(defined() && shape.size() == size(), ExitCode::kData, "a tensor of shape {} cannot be seen as {}", shape_.str(),
        shape.str());
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor copy = empty(shape_, dtype_);
  std::memcpy(copy.raw_, raw_, bytes());
  return copy;
}

Tensor Tensor::to(DType dtype) const {
  if (!defined() || dtype == dtype_) return *this;
  Tensor converted = empty(shape_, dtype);
  backend().convert(*this, converted);
  return converted;
}

double Tensor::at(std::int64_t index) const {
  check(defined() && index >= 0 && index < size(), ExitCode::kData, "element {} of a tensor of shape {}", index, shape_.str());
  switch (dtype_) {
    case DType::kF32:
      return static_cast<double>(data<float>()[index]);
    case DType::kF64:
      return data<double>()[index];
    case DType::kI32:
      return data<std::int32_t>()[index];
    case DType::kBF16:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(data<BFloat16>()[index].bits) << 16));
  }
  return 0;
}

double Tensor::item() const {
  check(defined() && size() == 1, ExitCode::kData, "the single element of a tensor of shape {}", shape_.str());
  return at(0);
}

}  // namespace gau
