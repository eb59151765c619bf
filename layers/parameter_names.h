// Names of a model's parameters, those of the published checkpoints (GAUAlphaForMaskedLM): in memory, in files, in exports.
#pragma once

namespace gau::parameter_names {

inline constexpr const char* kWord = "gau_alpha.embeddings.word_embeddings.weight";
inline constexpr const char* kType = "gau_alpha.embeddings.token_type_embeddings.weight";
/// Not among the parameters of a model whose head is tied to the word embeddings.
inline constexpr const char* kDecoder = "cls.predictions.decoder.weight";
/// Of layer N: this, N, ".gau.", and the name within the layer.
inline constexpr const char* kLayer = "gau_alpha.encoder.layer.";

}  // namespace gau::parameter_names
