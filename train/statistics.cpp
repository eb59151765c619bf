// Bootstrap and Student intervals. The t quantile is found by bisection on the incomplete beta function: slow and exact enough
// (1e-12), and there is nothing to fit.
#include "train/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "framework/random.h"

namespace gau {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Quantile of sorted values, linear between neighbours.
double quantile(const std::vector<double>& sorted, double probability) {
  const double place = probability * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// The continued fraction of the incomplete beta function by Lentz's method; converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m <= 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    result *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return result;
}

/// P(T > t) for t ≥ 0.
double student_tail(double t, double degrees) { return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)); }

}  // namespace

Interval bootstrap_ratio(std::span<const double> numerators, std::span<const double> counts, std::uint64_t seed) {
  assert(!numerators.empty() && numerators.size() == counts.size());
  const double value = sum(numerators) / sum(counts);
  if (!std::isfinite(value)) return {value, kNan, kNan};
  const RandomKey key{seed, 0, Site::kBootstrap, 0};
  const std::uint64_t units = numerators.size();
  std::vector<double> ratios(static_cast<std::size_t>(kBootstrapResamples));
  for (std::size_t resample = 0; resample < ratios.size(); ++resample) {
    double numerator = 0;
    double count = 0;
    for (std::uint64_t drawn = 0; drawn < units; ++drawn) {
      const auto unit = static_cast<std::size_t>(
          key.below(units, static_cast<std::uint32_t>(resample), static_cast<std::uint32_t>(drawn), 0));
      numerator += numerators[unit];
      count += counts[unit];
    }
    ratios[resample] = numerator / count;
  }
  std::sort(ratios.begin(), ratios.end());
  return {value, quantile(ratios, 0.025), quantile(ratios, 0.975)};
}

Interval student_ratio(std::span<const double> numerators, std::span<const double> counts) {
  assert(!numerators.empty() && numerators.size() == counts.size());
  const double units = static_cast<double>(numerators.size());
  const double count = sum(counts);
  const double value = sum(numerators) / count;
  if (numerators.size() < 2 || !std::isfinite(value)) return {value, kNan, kNan};
  double squares = 0;
  for (std::size_t unit = 0; unit < numerators.size(); ++unit) {
    const double residual = numerators[unit] - value * counts[unit];
    squares += residual * residual;
  }
  const double error = std::sqrt(squares / (units * (units - 1))) / (count / units);
  const double reach = student_quantile(0.975, units - 1) * error;
  return {value, value - reach, value + reach};
}

Interval ratio_interval(std::span<const double> numerators, std::span<const double> counts, std::uint64_t seed) {
  const bool enough = static_cast<std::int64_t>(numerators.size()) >= kMinBootstrapUnits;
  return enough ? bootstrap_ratio(numerators, counts, seed) : student_ratio(numerators, counts);
}

std::string interval_label(UnitKind kind, std::int64_t units) {
  return std::string(units >= kMinBootstrapUnits ? "bootstrap over " : "t over ") +
         (kind == UnitKind::kDocuments ? "documents" : "blocks");
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_quantile(double probability, double degrees) {
  assert(probability > 0 && probability < 1 && degrees >= 1);
  if (probability < 0.5) return -student_quantile(1 - probability, degrees);
  const double tail = 1 - probability;
  double low = 0;
  double high = 1;
  while (student_tail(high, degrees) > tail) high *= 2;
  for (int step = 0; step < 200 && high - low > 1e-14 * high; ++step) {
    const double middle = (low + high) / 2;
    (student_tail(middle, degrees) > tail ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace gau
