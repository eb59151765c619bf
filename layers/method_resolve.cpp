// Completes a method with what its model says, and refuses what cannot be right for that model. After this every default that
// depends on L_train or on the number of layers is a plain number in the terms; only what depends on a batch's length is left.
#include <algorithm>
#include <cmath>

#include "layers/method.h"
#include "layers/method_table.h"

namespace gau {
namespace {

class Resolver {
 public:
  Resolver(const Method& method, const ModelConfig& model) : method_(method), model_(model) {}

  Method run() {
    if (!method_.position) {
      method_.position = parse_position(model_.attention.position);
      method_.window = model_.attention.window;
    }
    if (!method_.law) method_.law = model_law(model_);
    if (method_.name.empty()) method_.name = own_name();
    check_cosine();
    check_law();
    check_position();
    fill_position();
    return method_;
  }

 private:
  PositionTerm& position() { return *method_.position; }
  LawTerm& law() { return *method_.law; }
  double train() const { return static_cast<double>(model_.attention.train_length); }

  std::string own_name() const {
    const LawKind kind = method_.law->kind;
    return model_.attention.position + (kind == LawKind::kNone ? "" : std::string("+") + gau::name_of(kind));
  }

  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) fail(ExitCode::kUsage, "method '{}': {}", method_.name, fmt::format(format, std::forward<Args>(args)...));
  }
  void require_train(const char* what, const char* how) const {
    require(model_.attention.train_length >= 1, "{} depends on the training length, which this model does not store; write {}",
            what, how);
  }
  // The term's own number, or else what `otherwise` computes from L_train (`how` shows the way to give it).
  template <class F>
  double default_by_train(const char* name, const char* how, F otherwise) {
    if (!position().number(name)) {
      require_train(name, how);
      position().numbers[name] = otherwise();
    }
    return position().numbers.at(name);
  }
  void set_default(const char* name, double value) { position().numbers.emplace(name, value); }

  void check_cosine() const {
    if (!method_.cosine_scale) return;
    const AttentionConfig& attention = model_.attention;
    require(attention.kind == AttentionKind::kCosine, "cosscale needs a model with cosine attention; this one has {}",
            gau::name_of(attention.kind));
    require(!attention.learn_scale, "cosscale cannot replace the scale s of this model, which is learned in each layer");
  }

  void check_law() const {
    const LawKind kind = method_.law->kind;
    const LawKind own = model_law(model_).kind;
    require(kind != LawKind::kSsmax || own == LawKind::kSsmax,
            "ssmax has a learned factor in each layer, which this model was not trained with");
    require(own != LawKind::kSsmax || kind == LawKind::kSsmax,
            "this model was trained with ssmax, whose learned factors are part of its layers; {} cannot replace them",
            gau::name_of(kind));
    require(kind != LawKind::kCalibrated || !model_.attention.calibration.empty(),
            "this model holds no calibrated factors; they are fitted after training");
    require(method_.position->kind != PositionKind::kYarn || kind == LawKind::kNone,
            "yarn brings its own temperature and is not joined with {}, the law of this model; write yarn+none to drop that",
            gau::name_of(kind));
    if (kind != LawKind::kInfoScale && kind != LawKind::kLogN) return;
    const double length = method_.law->number("train").value_or(train());
    const char* name = gau::name_of(kind);
    require(length >= 1, "{} needs the training length, which this model does not store; write {}:train=64", name, name);
    require(length > 1, "{} divides by its value at the training length, which is 0 for a training length of 1", name);
  }

  void check_position() const {
    const PositionKind kind = method_.position->kind;
    require(kind != PositionKind::kNope,
            "without positions in any layer an encoder cannot tell the order of its tokens; use rope, alibi or hwfa");
    const bool training = kind == PositionKind::kAlibi || kind == PositionKind::kHwfa || kind == PositionKind::kHwfa2 ||
                          kind == PositionKind::kPose || kind == PositionKind::kRandom;
    if (training && kind != parse_position(model_.attention.position).kind) {
      warn_once(fmt::format("method '{}': {} is a way of training, and this model was trained with {}", method_.name,
                            gau::name_of(kind), model_.attention.position));
    }
  }

  void fill_position() {
    switch (position().kind) {
      case PositionKind::kRope:
      case PositionKind::kNope:
        return;
      case PositionKind::kPi:
      case PositionKind::kNtk:
        if (!position().number("factor")) require_train("its factor", "factor=…");
        return;
      case PositionKind::kYarn:
        return fill_yarn();
      case PositionKind::kRerope:
        default_by_train("w", "rerope:w=32", [this] { return half_train(); });
        return set_default("clamp", position().numbers.at("w"));
      case PositionKind::kLeakyRerope:
        return fill_leaky();
      case PositionKind::kAlibi:
        return fill_alibi();
      case PositionKind::kWindow:
        default_by_train("w", "window:w=63", [this] { return std::max(1.0, train() - 1); });
        return;
      case PositionKind::kStreaming:
        return fill_streaming();
      case PositionKind::kLmInfinite:
        return fill_lm_infinite();
      case PositionKind::kHwfa:
      case PositionKind::kHwfa2:
        return fill_hwfa();
      case PositionKind::kPose:
      case PositionKind::kRandom:
        return fill_training_target();
    }
  }

  double half_train() const { return std::max(1.0, std::floor(train() / 2)); }

  void fill_yarn() {
    const double length = default_by_train("train", "yarn:train=64", [this] { return train(); });
    set_default("beta_fast", 32);
    set_default("beta_slow", 1);
    const double fast = position().numbers.at("beta_fast");
    require(fast >= position().numbers.at("beta_slow"), "beta_fast is below beta_slow");
    const double turns = length / 6.283185307179586;
    if (fast >= turns) {
      warn_once(fmt::format(
          "yarn: beta_fast = {} does nothing at a training length of {}, since no pair turns more than {:.1f} times", fast,
          length, turns));
    }
  }

  void fill_leaky() {
    const double w = default_by_train("w", "leaky-rerope:w=32", [this] { return half_train(); });
    if (position().number("k")) return;
    require_train("its slope", "leaky-rerope:w=32;k=8");
    require(train() - 1 > w, "w = {} leaves no distance below the training length {}; make w smaller or give k", w, train());
  }

  void fill_alibi() {
    std::map<std::string, double>& numbers = position().numbers;
    if (const std::optional<double> both = position().number("m")) {
      numbers = {{"left", *both}, {"right", *both}};
    }
    set_default("left", 0.0625);
    set_default("right", 0.03125);
    require(numbers.at("left") > 0 || numbers.at("right") > 0,
            "with both slopes 0 an encoder cannot tell the order of its tokens");
    if (numbers.at("left") == numbers.at("right")) {
      warn_once(fmt::format("method '{}': slopes are symmetric, so an encoder cannot tell left from right", method_.name));
    }
  }

  void fill_streaming() {
    set_default("sinks", 4);
    set_default("rows", 0);
    position().words.emplace("positions", "reindexed");
    const double sinks = position().numbers.at("sinks");
    const double window = default_by_train("window", "streaming:sinks=4;window=29",
                                           [this, sinks] { return std::floor((train() - sinks - 1) / 2); });
    require(window >= 1, "{} sinks leave no window within a training length of {}; give window=… or fewer sinks", sinks,
            train());
  }

  void fill_lm_infinite() {
    const double window = default_by_train("window", "lm-infinite:window=64", [this] { return train(); });
    set_default("sinks", 10);
    set_default("rows", 0);
    set_default("clamp", model_.attention.train_length > 0 ? train() : window);
  }

  // The windowed layers together may reach three quarters of L_train, so that the full layer sees every distance in training.
  void fill_hwfa() {
    require(model_.layers >= 2, "hwfa needs at least 2 layers, some with a window and a full one; this model has {}",
            model_.layers);
    const double windowed = static_cast<double>(model_.layers - 1);
    const double w = default_by_train("w", "hwfa:w=4", [&] { return std::floor((0.75 * train() - 1) / (2 * windowed)); });
    require(w >= 1, "{} windowed layers within a training length of {} leave no window; give w=…", windowed, train());
    if (position().kind == PositionKind::kHwfa2) {
      default_by_train("rerope", "hwfa2:w=4;rerope=32", [this] { return half_train(); });
    }
  }

  void fill_training_target() {
    if (model_.attention.train_length == 0) return;
    set_default("target", 16 * train());
    require(position().numbers.at("target") >= train(), "target = {} is below the training length {}",
            position().numbers.at("target"), train());
  }

  Method method_;
  const ModelConfig& model_;
};

}  // namespace

Method resolve(const Method& method, const ModelConfig& model) { return Resolver(method, model).run(); }

}  // namespace gau
