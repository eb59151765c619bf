// Schedules in closed form: a step's learning rate needs nothing but its number, so a resumed run cannot be off by one.
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gau {
namespace {

constexpr double kFirstScale = 4;  // small enough that attention spreads from the first step

double piecewise(const SchedulePoints& points, std::int64_t step) {
  if (step <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto [end, after] = points[i];
    if (step >= end) continue;
    const auto [start, before] = points[i - 1];
    const double share = static_cast<double>(step - start) / static_cast<double>(end - start);
    return before + share * (after - before);
  }
  return points.back().second;
}

/// The factor after the warm-up, with `left` of `all` steps left.
double decay(ScheduleKind schedule, double left, double all) {
  if (schedule == ScheduleKind::kLinear) return left / all;
  if (schedule != ScheduleKind::kCosine) return 1;
  // (1 - cos x) / 2 without cancellation.
  const double half = std::sin(std::numbers::pi * left / all / 2);
  return half * half;
}

}  // namespace

std::int64_t warmup_in_steps(double warmup, std::int64_t steps) {
  const double count = warmup < 1 ? std::floor(warmup * static_cast<double>(steps)) : warmup;
  return std::min(static_cast<std::int64_t>(count), steps - 1);
}

double learning_rate(const OptimConfig& optim, std::int64_t step) {
  step = std::clamp<std::int64_t>(step, 0, optim.steps - 1);
  const std::int64_t warmup = optim.warmup_steps();
  const double rise = step < warmup ? static_cast<double>(step + 1) / static_cast<double>(warmup) : 1;
  if (optim.schedule == ScheduleKind::kPiecewise) return optim.lr * rise * piecewise(optim.points, step);
  if (step < warmup) return optim.lr * rise;
  return optim.lr * decay(optim.schedule, static_cast<double>(optim.steps - step), static_cast<double>(optim.steps - warmup));
}

double cosine_scale(const AttentionConfig& attention, std::int64_t steps, std::int64_t step) {
  if (attention.kind != AttentionKind::kCosine || attention.learn_scale) return 0;
  const std::int64_t warmup = warmup_in_steps(attention.scale_warmup, steps);
  if (step >= warmup) return attention.scale;
  return kFirstScale + (attention.scale - kFirstScale) * static_cast<double>(step) / static_cast<double>(warmup);
}

}  // namespace gau
