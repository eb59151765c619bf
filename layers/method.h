// Methods by name: what `--methods`, `[attention] law` and `[attention] position` say, parsed and checked, nothing computed.
//
// An entry joins terms by '+': at most one position term, one law term and one `cosscale:s=…`; a term may carry values,
// `rerope:w=32;clamp=7`. What is not said comes from the model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/model_config.h"

namespace gau {

enum class PositionKind {
  kRope,
  kNope,
  kPi,
  kNtk,
  kYarn,
  kRerope,
  kLeakyRerope,
  kAlibi,
  kWindow,
  kStreaming,
  kLmInfinite,
  kHwfa,    ///< windowed layers with RoPE, the last one full and without
  kHwfa2,   ///< windowed layers with RoPE, the middle one full, with RoPE (ReRoPE beyond L_train)
  kPose,    ///< trains RoPE on skipped positions; RoPE at evaluation
  kRandom,  ///< trains RoPE on sorted random positions; RoPE at evaluation
};

enum class LawKind { kNone, kSoftmaxPlus, kInfoScale, kLogN, kSsmax, kCalibrated, kScaleInvariant };

/// A term with its values, numbers by name ("w" -> 32) and words by name ("count" -> "valid").
struct PositionTerm {
  PositionKind kind = PositionKind::kRope;
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
  /// numbers[name], or nothing.
  std::optional<double> number(const std::string& name) const;
};

struct LawTerm {
  LawKind kind = LawKind::kNone;
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
  std::optional<double> number(const std::string& name) const;
};

/// One way to compute attention with a given model. Parsed entries have the text they came from as `name`.
struct Method {
  std::string name;
  std::optional<PositionTerm> position;  ///< nothing: the model's own
  std::optional<LawTerm> law;            ///< nothing: the model's own
  std::optional<double> cosine_scale;    ///< nothing: the model's own
  /// |Δ| ≤ window besides what the position term masks: [attention] window, set by resolve() for the model's own position. 0:
  /// none.
  std::int64_t window = 0;
};

/// One entry. Throws Error(kUsage) for an unknown name (with the nearest known one), an unknown or doubled value, nonsense
/// numbers, two terms of one kind, or `yarn` with a law.
Method parse_method(std::string_view entry);
/// A comma-separated list; "all" stands for every evaluation method that the model can take.
std::vector<Method> parse_methods(std::string_view list, const ModelConfig& model);
/// A single position or law term, as in a configuration; throws Error(kData). parse_law() takes "default" as "none":
/// model_law() is what it stands for.
PositionTerm parse_position(std::string_view term);
LawTerm parse_law(std::string_view term);
/// The law that the model is trained with: [attention] law, where "default" is logn for hwfa and hwfa2 and none otherwise.
LawTerm model_law(const ModelConfig& model);

/// Fills in what the entry leaves to the model, every default that depends on L_train or on the number of layers included, and
/// refuses what this model cannot do (Error(kUsage) with the reason: no L_train, L_train 1 with InfoScale, cosscale without
/// cosine attention, NoPE in every layer, …). A method of training (ALiBi, HWFA) asked of a model trained otherwise is a
/// warning. Resolving twice changes nothing.
Method resolve(const Method& method, const ModelConfig& model);

/// Names by edit distance, for "did you mean": the closest of `known`, or "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace gau
