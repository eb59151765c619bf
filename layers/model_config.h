// What a model is: sizes, and the attention it was trained with. Stored in every model file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gau {

enum class AttentionKind {
  kDot,      ///< q·k / √d
  kCosine,   ///< s · cos(q, k)
  kKeyNorm,  ///< q·k / ‖k‖, without 1/√d
};

/// How γ of q and k starts (docs/methods.md).
enum class InitGamma {
  kDefault,  ///< signs for cosine layers with RoPE, ones everywhere else
  kOnes,
  kSign,    ///< independent random ±1 for q and k
  kNormal,  ///< independent standard normal
};

/// Fitted factors of the law `calibrated`: what multiplies the logits of each layer at one length.
struct Calibration {
  std::int64_t length = 0;
  std::vector<double> factors;  ///< one a layer
  std::vector<double> targets{};  ///< the mean row entropy that each layer was fitted to, nats; empty: the file does not say
};

struct AttentionConfig {
  AttentionKind kind = AttentionKind::kDot;
  double scale = 32;         ///< s of cosine attention
  bool learn_scale = false;  ///< s is a parameter of each layer, starting at `scale`
  double scale_warmup = 0;   ///< steps (below 1: a fraction of all) over which s grows from 4 to `scale`
  /// A law term, used in training and, by default, in evaluation; "default": logn for hwfa and hwfa2, none otherwise.
  std::string law = "default";
  std::string position = "rope";  ///< a position term
  std::int64_t window = 0;        ///< |Δ| ≤ window in every layer when training; 0: no limit
  InitGamma init_gamma = InitGamma::kDefault;
  std::int64_t train_length = 0;         ///< L_train; 0: not known
  bool mask_diagonal = false;            ///< a token does not see itself
  std::vector<Calibration> calibration;  ///< of the law `calibrated`, one entry a length; empty: never fitted
};

struct ModelConfig {
  std::int64_t layers = 4;
  std::int64_t hidden = 128;        ///< H
  std::int64_t intermediate = 256;  ///< E
  std::int64_t key_size = 64;       ///< D, even
  std::int64_t vocab_size = 0;      ///< V
  std::int64_t type_vocab_size = 2;
  bool tied = true;  ///< the output projection is the token embedding
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_eps = 1e-12;
  AttentionConfig attention;

  std::int64_t pad_id = 0;

  /// Throws Error(kData) naming the key of the first value that makes no model.
  void validate() const;
  /// Number of parameters, counted without building the model.
  std::int64_t parameter_count() const;
};

/// "dot", "cosine", "keynorm" and "default", "ones", "sign", "normal"; throws Error(kData) listing the known names.
AttentionKind parse_attention_kind(const std::string& name);
const char* name_of(AttentionKind kind);
InitGamma parse_init_gamma(const std::string& name);
const char* name_of(InitGamma init);

}  // namespace gau
