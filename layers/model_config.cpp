// Checks of a model's sizes and attention, and its number of parameters.
#include "layers/model_config.h"

#include <array>
#include <cmath>
#include <span>

#include "framework/error.h"
#include "layers/method.h"

namespace gau {
namespace {

// Bounds under which every product of sizes below fits 64 bits with room to spare.
constexpr std::int64_t kMostWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostLength = std::int64_t{1} << 30;

template <class Kind>
struct Named {
  const char* name;
  Kind kind;
};

constexpr std::array<Named<AttentionKind>, 3> kAttentionKinds = {
    {{"dot", AttentionKind::kDot}, {"cosine", AttentionKind::kCosine}, {"keynorm", AttentionKind::kKeyNorm}}};
constexpr std::array<Named<InitGamma>, 4> kInitGammas = {
    {{"default", InitGamma::kDefault}, {"ones", InitGamma::kOnes}, {"sign", InitGamma::kSign}, {"normal", InitGamma::kNormal}}};

template <class Kind, std::size_t N>
Kind parse_named(const std::array<Named<Kind>, N>& table, const char* key, const std::string& name) {
  std::string known;
  for (const Named<Kind>& entry : table) {
    if (name == entry.name) return entry.kind;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  fail(ExitCode::kData, "[attention] {} = \"{}\" is unknown; known: {}", key, name, known);
}

template <class Kind, std::size_t N>
const char* name_in(const std::array<Named<Kind>, N>& table, Kind kind) {
  for (const Named<Kind>& entry : table) {
    if (entry.kind == kind) return entry.name;
  }
  return "?";
}

void check_range(const char* key, std::int64_t value, std::int64_t least, std::int64_t most) {
  check(value >= least && value <= most, ExitCode::kData, "{} = {} must be between {} and {}", key, value, least, most);
}

void check_rate(const char* key, double value) {
  check(value >= 0 && value < 1, ExitCode::kData, "{} = {} must be at least 0 and below 1", key, value);
}

void check_sizes(const ModelConfig& config) {
  check_range("[model] layers", config.layers, 1, kMostLayers);
  check_range("[model] hidden", config.hidden, 1, kMostWidth);
  check_range("[model] intermediate", config.intermediate, 1, kMostWidth);
  check_range("[model] key_size", config.key_size, 2, kMostWidth);
  check(config.key_size % 2 == 0, ExitCode::kData, "[model] key_size = {} must be even: rotary positions turn pairs",
        config.key_size);
  check_range("[model] vocab_size", config.vocab_size, 1, kMostLength);
  check_range("[model] type_vocab_size", config.type_vocab_size, 1, kMostWidth);
  check_range("[model] pad_id", config.pad_id, 0, config.vocab_size - 1);
  check_rate("[model] dropout", config.dropout);
  check_rate("[model] attention_dropout", config.attention_dropout);
  check(config.norm_eps > 0 && config.norm_eps < 1, ExitCode::kData, "[model] norm_eps = {} must be above 0 and below 1",
        config.norm_eps);
}

void check_attention(const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  check(attention.scale > 0 && std::isfinite(attention.scale), ExitCode::kData, "[attention] scale = {} must be above 0",
        attention.scale);
  check(attention.scale_warmup >= 0 && std::isfinite(attention.scale_warmup), ExitCode::kData,
        "[attention] scale_warmup = {} must not be negative", attention.scale_warmup);
  const bool cosine = attention.kind == AttentionKind::kCosine;
  check(cosine || !attention.learn_scale, ExitCode::kData,
        "[attention] learn_scale needs kind = \"cosine\"; with \"{}\" there is no scale", name_of(attention.kind));
  check(cosine || attention.scale_warmup == 0, ExitCode::kData,
        "[attention] scale_warmup needs kind = \"cosine\"; with \"{}\" there is no scale", name_of(attention.kind));
  check(!attention.learn_scale || attention.scale_warmup == 0, ExitCode::kData,
        "[attention] scale_warmup cannot be joined with learn_scale: a learned scale has no schedule");
  check_range("[attention] window", attention.window, 0, kMostLength);
  check_range("[attention] train_length", attention.train_length, 0, kMostLength);
  for (const Calibration& entry : attention.calibration) {
    check(static_cast<std::int64_t>(entry.factors.size()) == config.layers, ExitCode::kData,
          "calibrated factors at length {} are {} in number for {} layers", entry.length, entry.factors.size(), config.layers);
  }
}

// The position and the law must go together. Without a training length only what does not depend on it can be checked.
void check_method(const ModelConfig& config) {
  const PositionTerm position = parse_position(config.attention.position);
  parse_law(config.attention.law);
  ModelConfig model = config;
  if (model.attention.train_length == 0) {
    // Some length that every term accepts: long, but not above the target of PoSE.
    model.attention.train_length = static_cast<std::int64_t>(position.number("target").value_or(kMostLength));
  }
  try {
    resolve(Method{}, model);
  } catch (const Error& error) {
    fail(ExitCode::kData, "[attention] {}", error.what());
  }
}

}  // namespace

void ModelConfig::validate() const {
  check_sizes(*this);
  check_attention(*this);
  check_method(*this);
}

std::int64_t ModelConfig::parameter_count() const {
  std::int64_t layer = (2 * intermediate + key_size) * hidden + hidden * intermediate + 2 * key_size;
  if (attention.learn_scale) ++layer;
  if (parse_law(attention.law).kind == LawKind::kSsmax) ++layer;
  const std::int64_t table = vocab_size * hidden;
  return (tied ? 1 : 2) * table + type_vocab_size * hidden + layers * layer;
}

AttentionKind parse_attention_kind(const std::string& name) { return parse_named(kAttentionKinds, "kind", name); }
const char* name_of(AttentionKind kind) { return name_in(kAttentionKinds, kind); }
InitGamma parse_init_gamma(const std::string& name) { return parse_named(kInitGammas, "init_gamma", name); }
const char* name_of(InitGamma init) { return name_in(kInitGammas, init); }

}  // namespace gau
