// Positions of PoSE and of randomised positions.
#include "layers/training_positions.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "framework/error.h"
#include "framework/random.h"
#include "layers/method_table.h"

namespace gau {
namespace {

// The stream of one epoch; a sample is the first two words of its counter.
class SampleStream {
 public:
  SampleStream(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample)
      : key_{seed, epoch, Site::kPositions, 0},
        low_(static_cast<std::uint32_t>(sample)),
        high_(static_cast<std::uint32_t>(sample >> 32)) {}

  /// Draw number `index`, uniform in 0 … n - 1.
  std::int64_t below(std::int64_t n, std::uint32_t index) const {
    return static_cast<std::int64_t>(key_.below(static_cast<std::uint64_t>(n), low_, high_, index));
  }

 private:
  RandomKey key_;
  std::uint32_t low_;
  std::uint32_t high_;
};

std::int64_t target_of(const PositionTerm& term, std::int64_t length) {
  const std::optional<double> target = term.number("target");
  check(target.has_value(), ExitCode::kUsage, "{} needs the length that it trains for: {}:target=1024", name_of(term.kind),
        name_of(term.kind));
  check(*target >= static_cast<double>(length), ExitCode::kUsage, "{}: target = {} is below the length {} of a sample",
        name_of(term.kind), *target, length);
  return static_cast<std::int64_t>(*target);
}

// `length` distinct numbers below `target`, every subset equally likely (R. Floyd's algorithm).
std::vector<double> random_subset(std::int64_t target, std::int64_t length, const SampleStream& stream) {
  std::set<std::int64_t> chosen;
  for (std::int64_t most = target - length; most < target; ++most) {
    const std::int64_t candidate = stream.below(most + 1, static_cast<std::uint32_t>(most - (target - length)));
    chosen.insert(chosen.contains(candidate) ? most : candidate);
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

PoseSplit pose_split(std::int64_t target, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::int64_t length) {
  const SampleStream stream(seed, epoch, sample);
  return {1 + stream.below(std::max<std::int64_t>(1, length / 2), 0), stream.below(target - length + 1, 1)};
}

std::vector<double> training_positions(const PositionTerm& term, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                       std::int64_t length) {
  if (term.kind == PositionKind::kRandom) {
    return random_subset(target_of(term, length), length, SampleStream(seed, epoch, sample));
  }
  std::vector<double> positions(static_cast<std::size_t>(length));
  std::iota(positions.begin(), positions.end(), 0.0);
  if (term.kind == PositionKind::kPose) {
    const PoseSplit split = pose_split(target_of(term, length), seed, epoch, sample, length);
    for (std::int64_t i = split.first; i < length; ++i)
      positions[static_cast<std::size_t>(i)] += static_cast<double>(split.skip);
  }
  return positions;
}

}  // namespace gau
