#include "layers/initializer.h"

#include <cmath>
#include <numbers>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau {

namespace {

// A standard normal number at (element, attempt) by Box and Muller's formula.
double normal_at(const RandomKey& key, std::int64_t element, std::uint32_t attempt) {
  const auto bits = key.draw(static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(element >> 32), attempt);
  const double u = (bits[0] + 1.0) / 4294967296.0;  // in (0, 1]
  const double v = bits[1] / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

template <class F>
void fill_each(Tensor out, F&& value) {
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const float rounded = static_cast<float>(value(i));
    if (out.dtype() == DType::kF64) {
      out.data<double>()[i] = rounded;
    } else {
      out.data<float>()[i] = rounded;
    }
  }
}

}  // namespace

double initial_std(std::int64_t fan, std::int64_t layers) {
  return 1.13684723 / std::sqrt(static_cast<double>(fan)) * std::pow(static_cast<double>(layers), -1.0 / 3.0);
}

void fill_truncated_normal(Tensor out, double std, const RandomKey& key) {
  fill_each(out, [&](std::int64_t i) {
    double x = normal_at(key, i, 0);
    for (std::uint32_t attempt = 1; std::abs(x) > 2; ++attempt) x = normal_at(key, i, attempt);
    return std * x;
  });
}

void initialize_gamma(Tensor gamma, const AttentionConfig& config, bool rotates, const RandomKey& key) {
  InitGamma init = config.init_gamma;
  if (init == InitGamma::kDefault) {
    init = config.kind == AttentionKind::kCosine && rotates ? InitGamma::kSign : InitGamma::kOnes;
  }
  switch (init) {
    case InitGamma::kSign:
      fill_each(gamma, [&](std::int64_t i) { return key.draw(static_cast<std::uint32_t>(i), 0, 0)[0] & 1 ? 1.0 : -1.0; });
      break;
    case InitGamma::kNormal:
      fill_each(gamma, [&](std::int64_t i) { return normal_at(key, i, 0); });
      break;
    default:
      kernels::fill(gamma, 1);
  }
}

}  // namespace gau
