// swish of the input projection, split into its parts, and its gradient: h is read once, nothing else is kept.
#include <algorithm>
#include <array>
#include <utility>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/cpu/vector_math.h"
#include "framework/parallel.h"

namespace gau {
namespace {

template <class T>
struct Part {
  T* data = nullptr;  // nothing: absent (forward) or a gradient of zero (backward)
  std::int64_t width = 0;
};

template <class T>
void split_rows(const T* h, std::int64_t columns, const std::array<Part<T>, 3>& parts, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* from = h + r * columns;
    for (const Part<T>& part : parts) {
      T* const to = part.data + r * part.width;
#pragma omp simd
      for (std::int64_t c = 0; c < part.width; ++c) to[c] = cpu::swish(from[c]);
      from += part.width;
    }
  }
}

template <class T>
void join_rows(const T* h, std::int64_t columns, const std::array<Part<const T>, 3>& parts, T* dh, std::int64_t begin,
               std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* from = h + r * columns;
    T* to = dh + r * columns;
    for (const Part<const T>& part : parts) {
      if (part.data == nullptr) {
        std::fill(to, to + part.width, T(0));
      } else {
        const T* const gradient = part.data + r * part.width;
#pragma omp simd
        for (std::int64_t c = 0; c < part.width; ++c) to[c] = gradient[c] * cpu::swish_slope(from[c]);
      }
      from += part.width;
      to += part.width;
    }
  }
}

// The parts' gradients; absent ones share what is left of the columns, which is unambiguous for neighbours (kernels.cpp).
template <class T>
std::array<Part<const T>, 3> gradient_parts(std::array<const Tensor*, 3> tensors, std::int64_t columns) {
  std::array<Part<const T>, 3> parts;
  std::int64_t left = columns;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!tensors[i]->defined()) continue;
    parts[i] = {tensors[i]->data<T>(), tensors[i]->columns()};
    left -= parts[i].width;
  }
  for (Part<const T>& part : parts) {
    if (part.data == nullptr) part.width = std::exchange(left, 0);
  }
  return parts;
}

}  // namespace

void CpuBackend::swish_split(const Tensor& h, Tensor u, Tensor v, Tensor z) {
  cpu::dispatch(h.dtype(), "swish_split", [&](auto zero) {
    using T = decltype(zero);
    const auto part = [](Tensor& tensor) { return tensor.defined() ? Part<T>{tensor.data<T>(), tensor.columns()} : Part<T>{}; };
    const std::array<Part<T>, 3> parts{part(u), part(v), part(z)};
    parallel_for(h.rows(), cpu::rows_per_block(h.columns()), [&, from = h.data<T>()](std::int64_t begin, std::int64_t end) {
      split_rows(from, h.columns(), parts, begin, end);
    });
  });
}

void CpuBackend::swish_split_backward(const Tensor& h, const Tensor& du, const Tensor& dv, const Tensor& dz, Tensor dh) {
  cpu::dispatch(h.dtype(), "swish_split_backward", [&](auto zero) {
    using T = decltype(zero);
    const auto parts = gradient_parts<T>({&du, &dv, &dz}, h.columns());
    T* const to = dh.data<T>();
    parallel_for(h.rows(), cpu::rows_per_block(h.columns()), [&, from = h.data<T>()](std::int64_t begin, std::int64_t end) {
      join_rows(from, h.columns(), parts, to, begin, end);
    });
  });
}

}  // namespace gau
