// Temperature laws, all in double: they are computed once a row on the host and folded into q.
#include "layers/temperature.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "framework/error.h"

namespace gau {
namespace {

// ln(base) of softmax_plus is fixed by the model's makers: 512 is the length that they trained at, 16 the least length they
// scaled.
constexpr double kSoftmaxPlusBase = 512;
constexpr double kSoftmaxPlusLeast = 16;

bool flag(const LawTerm& law, const std::string& name, bool otherwise) {
  const std::optional<double> value = law.number(name);
  return value ? *value != 0 : otherwise;
}

double required_train_length(const LawTerm& law, std::int64_t train_length, const char* name) {
  const double train = law.number("train").value_or(static_cast<double>(train_length));
  check(train >= 1, ExitCode::kUsage, "{} needs the training length, which this model does not store: write {}:train=64", name,
        name);
  check(train > 1, ExitCode::kUsage, "{} divides by its value at the training length, which is 0 for a training length of 1",
        name);
  return train;
}

// sqrt(1 - n^(-2/d)), without cancellation for a large d.
double concentration(double n, double d) { return std::sqrt(-std::expm1(-2.0 / d * std::log(n))); }

}  // namespace

double temperature(const LawTerm& law, std::int64_t keys, std::int64_t train_length, std::int64_t key_size) {
  const double l = static_cast<double>(keys);
  switch (law.kind) {
    case LawKind::kNone:
    case LawKind::kCalibrated:
    case LawKind::kScaleInvariant:
      return 1;
    case LawKind::kSoftmaxPlus:
      if (keys == 0) return 1;
      return std::log(std::max(l, kSoftmaxPlusLeast)) / std::log(law.number("base").value_or(kSoftmaxPlusBase));
    case LawKind::kSsmax:
      return keys == 0 ? 1 : std::log(l);
    case LawKind::kInfoScale: {
      const double train = required_train_length(law, train_length, "infoscale");
      if (keys == 0) return 1;
      const double d = static_cast<double>(key_size);
      const double factor = concentration(l, d) / concentration(train, d);
      return flag(law, "clip", false) ? std::max(1.0, factor) : factor;
    }
    case LawKind::kLogN: {
      const double train = required_train_length(law, train_length, "logn");
      if (keys == 0) return 1;
      const double factor = std::log(l) / std::log(train);
      return flag(law, "clip", true) ? std::max(1.0, factor) : factor;
    }
  }
  return 1;
}

}  // namespace gau
