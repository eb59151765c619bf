// Frequencies and tables of rotary position embedding.
#include "layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/error.h"

namespace gau {
namespace {

// The (real) index of the pair that turns `turns` times within `length` positions.
double pair_of_turns(double key_size, double length, double turns) {
  return key_size * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(kRopeBase));
}

template <class T>
void fill_table(std::span<const double> positions, const Spectrum& spectrum, RotaryTable& table) {
  T* cosine = table.cos.data<T>();
  T* sine = table.sin.data<T>();
  for (const double position : positions) {
    for (const double frequency : spectrum.frequencies) {
      const double angle = position * frequency;
      *cosine++ = static_cast<T>(std::cos(angle) * spectrum.magnitude);
      *sine++ = static_cast<T>(std::sin(angle) * spectrum.magnitude);
    }
  }
}

}  // namespace

Spectrum rope_spectrum(std::int64_t key_size, double base) {
  Spectrum spectrum;
  for (std::int64_t i = 0; i < key_size / 2; ++i) {
    spectrum.frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(key_size)));
  }
  return spectrum;
}

Spectrum pi_spectrum(std::int64_t key_size, double factor) {
  Spectrum spectrum = rope_spectrum(key_size);
  for (double& frequency : spectrum.frequencies) frequency /= factor;
  return spectrum;
}

Spectrum ntk_spectrum(std::int64_t key_size, double factor) {
  check(key_size > 2, ExitCode::kUsage, "ntk needs a key size above 2: with a single pair there is no base to change");
  const double d = static_cast<double>(key_size);
  return rope_spectrum(key_size, kRopeBase * std::pow(factor, d / (d - 2)));
}

Spectrum yarn_spectrum(std::int64_t key_size, double train, double factor, double beta_fast, double beta_slow) {
  const double d = static_cast<double>(key_size);
  const double low = std::max(std::floor(pair_of_turns(d, train, beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of_turns(d, train, beta_slow)), d - 1);
  // An empty ramp becomes a step just above `low`.
  if (high <= low) high = low + 0.001;
  Spectrum spectrum = rope_spectrum(key_size);
  for (std::size_t i = 0; i < spectrum.frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double frequency = spectrum.frequencies[i];
    spectrum.frequencies[i] = frequency / factor * ramp + frequency * (1 - ramp);
  }
  spectrum.magnitude = 0.1 * std::log(std::max(1.0, factor)) + 1;
  return spectrum;
}

RotaryTable rotary_table(std::span<const double> positions, const Shape& shape, const Spectrum& spectrum, DType dtype) {
  std::vector<std::int64_t> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  dims.push_back(static_cast<std::int64_t>(spectrum.frequencies.size()));
  const Shape full{std::span<const std::int64_t>(dims)};
  RotaryTable table{Tensor::empty(full, dtype), Tensor::empty(full, dtype)};
  if (dtype == DType::kF64) {
    fill_table<double>(positions, spectrum, table);
  } else {
    fill_table<float>(positions, spectrum, table);
  }
  return table;
}

}  // namespace gau
