// Position terms as masks, regions and rotations.
//
// RoPE gives q_i · k_j a phase of (p_i - p_j) · f when q turns by p_i and k by p_j. A constant distance c on the left therefore
// turns q by c and leaves k alone; on the right it is k that turns, which makes the distance -c. A region where distances grow
// more slowly has tables of its own for every position.
#include "layers/attention_geometry.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"

namespace gau {
namespace {

constexpr double kScaleInvariantTau = 10;

class GeometryBuilder {
 public:
  explicit GeometryBuilder(const GeometryRequest& request) : request_(request), term_(*request.method.position) {}

  AttentionPlan build() {
    plan_.mask_diagonal = request_.model.attention.mask_diagonal;
    add_position();
    if (request_.method.window > 0) plan_.window = std::min(plan_.window, request_.method.window);
    if (request_.method.law->kind == LawKind::kScaleInvariant) add_distance_law();
    return std::move(plan_);
  }

  Spectrum spectrum() const {
    const std::int64_t d = request_.model.key_size;
    switch (term_.kind) {
      case PositionKind::kPi:
        return pi_spectrum(d, stretch());
      case PositionKind::kNtk:
        return ntk_spectrum(d, stretch());
      case PositionKind::kYarn:
        return yarn_spectrum(d, real("train"), stretch(), real("beta_fast"), real("beta_slow"));
      default:
        return rope_spectrum(d);
    }
  }

 private:
  double real(const char* name) const { return term_.numbers.at(name); }
  std::int64_t whole(const char* name) const { return static_cast<std::int64_t>(real(name)); }

  // max(1, L / L_train), unless the term says it.
  double stretch() const {
    const double train = term_.number("train").value_or(static_cast<double>(request_.model.attention.train_length));
    return term_.number("factor").value_or(std::max(1.0, static_cast<double>(request_.nominal) / train));
  }

  void add_position() {
    switch (term_.kind) {
      case PositionKind::kNope:
        return;
      case PositionKind::kAlibi:
        plan_.slope_left = real("left");
        plan_.slope_right = real("right");
        return;
      case PositionKind::kHwfa:
      case PositionKind::kHwfa2:
        return add_hwfa();
      default:
        break;
    }
    add_near();
    if (term_.kind == PositionKind::kWindow) plan_.window = whole("w");
    if (term_.kind == PositionKind::kRerope) add_constant_far(whole("w"), real("clamp"));
    if (term_.kind == PositionKind::kLeakyRerope) add_leaky();
    if (term_.kind == PositionKind::kLmInfinite) {
      add_arrow();
      add_constant_far(whole("clamp") + 1, real("clamp"));
    }
    if (term_.kind == PositionKind::kStreaming) {
      add_arrow();
      if (term_.words.at("positions") == "reindexed") add_reindexed();
    }
  }

  void add_near() {
    plan_.near.q = table_of([](double i) { return i; });
    plan_.near.k = plan_.near.q;
  }

  void add_arrow() {
    plan_.window = whole("window");
    plan_.sinks = whole("sinks");
    plan_.rows = whole("rows");
  }

  // Whether some visible pair lies at |Δ| ≥ limit.
  bool reaches(std::int64_t limit) const {
    const std::int64_t farthest =
        plan_.sinks > 0 || plan_.rows > 0 ? request_.length - 1 : std::min(plan_.window, request_.length - 1);
    return farthest >= limit;
  }

  void add_constant_far(std::int64_t limit, double distance) {
    if (!reaches(limit)) return;
    plan_.near_limit = limit;
    plan_.left.q = constant_table(distance);
    plan_.right.k = plan_.left.q;
  }

  // Beyond w a token counts 1/k: ±(w + (|Δ| - w) / k).
  void add_leaky() {
    const std::int64_t limit = whole("w");
    const double w = real("w");
    const double train = static_cast<double>(request_.model.attention.train_length);
    const double nominal = static_cast<double>(request_.nominal);
    double k = 1;
    if (term_.number("k")) {
      k = real("k");
    } else if (nominal > train) {
      k = (nominal - w) / (train - 1 - w);
    }
    if (k == 1 || !reaches(limit)) return;
    plan_.near_limit = limit;
    const RotaryTable plain = table_of([k](double i) { return i / k; });
    const RotaryTable shifted = table_of([k, w](double i) { return i / k + (w - w / k); });
    plan_.left = {shifted, plain};
    plan_.right = {plain, shifted};
  }

  // Far pairs are those of sinks and of rows that see all. A query past the sinks and one window stands where the last sink
  // would come right before its window; the same, mirrored, for the keys of a row that sees all to its right.
  void add_reindexed() {
    const std::int64_t limit = plan_.window + 1;
    if (!reaches(limit)) return;
    plan_.near_limit = limit;
    const double sinks = real("sinks");
    const double rows = real("rows");
    const double window = real("window");
    plan_.left = {table_of([=](double i) { return i < rows ? i : std::min(i, sinks + window); }), plan_.near.k};
    plan_.right = {plan_.near.q, table_of([=](double j) { return std::min(j, std::max(rows + window, sinks)); })};
  }

  void add_hwfa() {
    if (is_windowed_layer(request_.model, request_.method, request_.layer)) {
      plan_.window = whole("w");
      return add_near();
    }
    if (term_.kind == PositionKind::kHwfa) return;
    add_near();
    // Within the training length the layer stays as it was trained.
    if (request_.nominal > request_.model.attention.train_length) add_constant_far(whole("rerope"), real("rerope"));
  }

  // Scale-invariant attention (arXiv 2505.17083): a² = 1 + 2 ln(1 + |Δ|/τ), m = 1 - a². For Gaussian logits the expected weight
  // of all keys between distances t and c·t then does not depend on t. a = 1 and m = 0 at distance 0.
  void add_distance_law() {
    const double tau = request_.method.law->number("tau").value_or(kScaleInvariantTau);
    for (std::int64_t distance = 0; distance < request_.length; ++distance) {
      const double growth = 2 * std::log1p(static_cast<double>(distance) / tau);
      plan_.distance_scale.push_back(std::sqrt(1 + growth));
      plan_.distance_shift.push_back(-growth);
    }
  }

  template <class F>
  RotaryTable table_of(F position) const {
    std::vector<double> positions;
    for (std::int64_t i = 0; i < request_.length; ++i) positions.push_back(position(static_cast<double>(i)));
    return rotary_table(positions, {request_.length}, spectrum(), request_.dtype);
  }

  RotaryTable constant_table(double position) const {
    return rotary_table(std::vector<double>{position}, {1}, spectrum(), request_.dtype);
  }

  const GeometryRequest& request_;
  const PositionTerm& term_;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan attention_geometry(const GeometryRequest& request) { return GeometryBuilder(request).build(); }

Spectrum method_spectrum(const GeometryRequest& request) { return GeometryBuilder(request).spectrum(); }

bool is_windowed_layer(const ModelConfig& model, const Method& method, std::int64_t layer) {
  if (method.position->kind == PositionKind::kHwfa) return layer != model.layers - 1;
  if (method.position->kind == PositionKind::kHwfa2) return layer != model.layers / 2;
  return false;
}

}  // namespace gau
