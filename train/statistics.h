// Confidence intervals of ratios of sums: mean loss and accuracy over documents that hold unequal numbers of targets.
//
// A unit is what may be taken as independent: a document, or a block of one. A figure is Σ numerator / Σ count over units, so
// every target weighs the same. Targets of one document resemble each other, therefore whole units are resampled, never
// targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gau {

/// A figure with its 95 % interval; low and high are NaN when there is no telling (one unit, or a figure that is not finite).
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// Below this many units a bootstrap is too narrow, and Student's t is used.
inline constexpr std::int64_t kMinBootstrapUnits = 20;
inline constexpr std::int64_t kBootstrapResamples = 2000;

enum class UnitKind { kDocuments, kBlocks };

/// Percentile bootstrap (Efron 1979): units are drawn with replacement kBootstrapResamples times; the interval runs between the
/// 2.5 % and 97.5 % quantiles of the ratios. A function of (seed, inputs): equal numbers of units give equal draws, so
/// several figures of the same units move together.
Interval bootstrap_ratio(std::span<const double> numerators, std::span<const double> counts, std::uint64_t seed);

/// value ± t(0.975, n − 1) · standard error, with the linearised error of a ratio (Cochran 1977, section 2.11):
/// sqrt(Σ (numerator − value · count)² / (n (n − 1))) / mean count. With equal counts this is the t interval of the unit means.
Interval student_ratio(std::span<const double> numerators, std::span<const double> counts);

/// The bootstrap from kMinBootstrapUnits units on, Student's t below. Both spans have one entry a unit; counts are above 0.
Interval ratio_interval(std::span<const double> numerators, std::span<const double> counts, std::uint64_t seed);

/// How ratio_interval() works for that many units: "bootstrap over documents", "t over blocks", …
std::string interval_label(UnitKind kind, std::int64_t units);

/// The regularised incomplete beta function I_x(a, b), a and b above 0, 0 ≤ x ≤ 1.
double incomplete_beta(double a, double b, double x);
/// The t with P(T ≤ t) = probability for Student's T with `degrees` ≥ 1 of freedom; 0 < probability < 1.
double student_quantile(double probability, double degrees);

}  // namespace gau
