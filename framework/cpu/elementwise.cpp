// Operations on elements: out[i] = f(a[i], b[i]), and conversions between types.
#include <algorithm>

#include "framework/cpu/bfloat16.h"
#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;
using cpu::kBlockElements;

template <class T>
void fill_all(Tensor& out, T value) {
  T* const to = out.data<T>();
  parallel_for(out.size(), kBlockElements,
               [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, value); });
}

template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<To>(cpu::to_float(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return cpu::to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
void convert_all(const Tensor& in, Tensor& out) {
  const From* const from = in.data<From>();
  To* const to = out.data<To>();
  parallel_for(in.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = convert_element<To>(from[i]);
  });
}

template <class From>
void convert_from(const Tensor& in, Tensor& out) {
  switch (out.dtype()) {
    case DType::kF32:
      return convert_all<float, From>(in, out);
    case DType::kF64:
      return convert_all<double, From>(in, out);
    case DType::kBF16:
      return convert_all<BFloat16, From>(in, out);
    case DType::kI32:
      fail(ExitCode::kData, "kernel convert: {} to i32 is not a conversion", name_of(in.dtype()));
  }
}

// `combine` runs inside the loop, so that it is compiled into vector code.
template <class Combine>
void combine_elements(const char* kernel, const Tensor& a, const Tensor& b, Tensor& out, const Combine& combine) {
  dispatch(out.dtype(), kernel, [&](auto zero) {
    using T = decltype(zero);
    const T* const left = a.data<T>();
    const T* const right = b.data<T>();
    T* const to = out.data<T>();
    parallel_for(out.size(), kBlockElements, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) to[i] = combine(left[i], right[i]);
    });
  });
}

}  // namespace

void CpuBackend::fill(Tensor out, double value) {
  if (out.dtype() == DType::kI32) return fill_all(out, static_cast<std::int32_t>(value));
  dispatch(out.dtype(), "fill", [&](auto zero) { fill_all(out, static_cast<decltype(zero)>(value)); });
}

void CpuBackend::convert(const Tensor& in, Tensor out) {
  switch (in.dtype()) {
    case DType::kF32:
      return convert_from<float>(in, out);
    case DType::kF64:
      return convert_from<double>(in, out);
    case DType::kBF16:
      return convert_from<BFloat16>(in, out);
    case DType::kI32:
      fail(ExitCode::kData, "kernel convert: i32 to {} is not a conversion", name_of(out.dtype()));
  }
}

void CpuBackend::add(const Tensor& a, const Tensor& b, Tensor out) {
  combine_elements("add", a, b, out, [](auto x, auto y) { return x + y; });
}

void CpuBackend::multiply(const Tensor& a, const Tensor& b, Tensor out) {
  combine_elements("multiply", a, b, out, [](auto x, auto y) { return x * y; });
}

void CpuBackend::scale(const Tensor& x, double alpha, Tensor out) {
  combine_elements("scale", x, x, out, [alpha](auto value, auto) { return static_cast<decltype(value)>(alpha) * value; });
}

}  // namespace gau
