// From z to what attention works on, in one pass over the rows: rotate(f · normalise(γ ⊙ z)) under each table.
//
//   d = f · Σ_t Rₜᵀ dout_t,  through the norm,  dz = γ ⊙ d,  dγ = Σ_rows z ⊙ d
// The pass back makes γ ⊙ z and its norm again: D numbers of a row that is in the cache cost less than keeping them.
#include <algorithm>
#include <vector>

#include "framework/cpu/cpu_backend.h"
#include "framework/cpu/dispatch.h"
#include "framework/cpu/row_functions.h"
#include "framework/parallel.h"

namespace gau {
namespace {

using cpu::dispatch;

// One call's tables and positions.
template <class T>
class Rotations {
 public:
  Rotations(const Tensor& z, const HeadTransform& how)
      : length_(z.dim(1)),
        pairs_(z.columns() / 2),
        positions_(how.positions.defined() ? how.positions.data<std::int32_t>() : nullptr) {
    for (const RotaryTable& table : how.tables) {
      if (table.defined()) {
        tables_.push_back({cpu::TableRows(table), table.cos.data<T>(), table.sin.data<T>()});
      } else {
        tables_.push_back({cpu::TableRows(), nullptr, nullptr});
      }
    }
  }

  // out = row r turned by table t, or turned back.
  void turn(std::size_t t, std::int64_t r, bool back, const T* row, T* out) const {
    const Table& table = tables_[t];
    const std::int64_t position = positions_ != nullptr ? positions_[r] : r % length_;
    if (table.cos == nullptr || position < 0) {
      std::copy_n(row, 2 * pairs_, out);
      return;
    }
    const std::int64_t place = table.rows.at(r / length_, position) * pairs_;
    cpu::rotate_row(row, table.cos + place, table.sin + place, back ? T(-1) : T(1), pairs_, out);
  }

 private:
  struct Table {
    cpu::TableRows rows;
    const T* cos;
    const T* sin;
  };
  std::int64_t length_, pairs_;
  const std::int32_t* positions_;
  std::vector<Table> tables_;
};

template <class T>
void scale(T* row, std::int64_t columns, T by) {
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) row[c] *= by;
}

template <class T>
void multiply(const T* a, const T* b, std::int64_t columns, T* out) {
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) out[c] = a[c] * b[c];
}

template <class T>
void forward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& outputs) {
  const std::int64_t columns = z.columns();
  const Rotations<T> rotations(z, how);
  const T* const from = z.data<T>();
  const T* const gamma = how.gamma.data<T>();
  const T* const factor = how.factor.defined() ? how.factor.data<T>() : nullptr;
  std::vector<T*> to;
  for (Tensor out : outputs) to.push_back(out.data<T>());
  parallel_for(z.rows(), cpu::rows_per_block(columns), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> row(static_cast<std::size_t>(columns));
    for (std::int64_t r = begin; r < end; ++r) {
      multiply(from + r * columns, gamma, columns, row.data());
      if (how.normalize) cpu::normalize_row(row.data(), columns, row.data());
      if (factor != nullptr) scale(row.data(), columns, factor[r]);
      for (std::size_t t = 0; t < to.size(); ++t) rotations.turn(t, r, false, row.data(), to[t] + r * columns);
    }
  });
}

// What a block of rows works in.
template <class T>
struct Scratch {
  explicit Scratch(std::int64_t columns)
      : scaled(static_cast<std::size_t>(columns)), turned(scaled.size()), gradient(scaled.size()) {}
  std::vector<T> scaled, turned, gradient;
};

template <class T>
void backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& douts, Tensor dz, Tensor dgamma) {
  const std::int64_t columns = z.columns(), grain = cpu::rows_per_block(columns), rows = z.rows();
  const Rotations<T> rotations(z, how);
  const T* const from = z.data<T>();
  const T* const gamma = how.gamma.data<T>();
  const T* const factor = how.factor.defined() ? how.factor.data<T>() : nullptr;
  T* const to = dz.data<T>();
  const auto blocks = (rows + grain - 1) / grain;
  std::vector<double> parts(static_cast<std::size_t>(blocks * columns), 0.0);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    Scratch<T> s(columns);
    double* const part = parts.data() + begin / grain * columns;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const row = from + r * columns;
      std::fill(s.gradient.begin(), s.gradient.end(), T(0));
      for (std::size_t t = 0; t < douts.size(); ++t) {
        if (!douts[t].defined()) continue;
        rotations.turn(t, r, true, douts[t].data<T>() + r * columns, s.turned.data());
        for (std::size_t c = 0; c < s.turned.size(); ++c) s.gradient[c] += s.turned[c];
      }
      if (factor != nullptr) scale(s.gradient.data(), columns, factor[r]);
      if (how.normalize) {
        multiply(row, gamma, columns, s.scaled.data());
        const T inverse = cpu::normalize_row(s.scaled.data(), columns, s.turned.data());
        cpu::normalize_row_backward(s.scaled.data(), inverse, s.gradient.data(), columns, s.gradient.data());
      }
      multiply(s.gradient.data(), gamma, columns, to + r * columns);
      const T* const gradient = s.gradient.data();
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) part[c] += static_cast<double>(row[c]) * static_cast<double>(gradient[c]);
    }
  });
  T* const sums = dgamma.data<T>();
  for (std::int64_t c = 0; c < columns; ++c) {
    double total = 0;
    for (std::int64_t b = 0; b < blocks; ++b) total += parts[static_cast<std::size_t>(b * columns + c)];
    sums[c] = static_cast<T>(total);
  }
}

}  // namespace

void CpuBackend::head_rows(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& out) {
  dispatch(z.dtype(), "head_rows", [&](auto zero) { forward<decltype(zero)>(z, how, out); });
}

void CpuBackend::head_rows_backward(const Tensor& z, const HeadTransform& how, const std::vector<Tensor>& dout, Tensor dz,
                                    Tensor dgamma) {
  dispatch(z.dtype(), "head_rows_backward", [&](auto zero) { backward<decltype(zero)>(z, how, dout, dz, dgamma); });
}

}  // namespace gau
