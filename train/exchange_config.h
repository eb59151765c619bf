// config.json of the Hugging Face layout of GAU-α, to and from the configuration of a model.
//
// Sizes, dropout and normalization have keys there. What gau knows besides (kind of attention, law, position, L_train,
// tokenizer) is under the key "gau", which other readers ignore; without it a file has the settings of the published GAU-α.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "layers/model_config.h"
#include "train/model_io.h"
#include "train/safetensors.h"

namespace gau {

struct ExchangeConfig {
  ModelConfig model;
  bool ties = true;                          ///< tie_word_embeddings: the head is the token embedding
  Tokenization text;                         ///< without its vocabulary, which is in vocab.txt
  std::map<std::int64_t, std::string> rows;  ///< tokens that a line of vocab.txt cannot hold, by id
  std::vector<std::string> notes;            ///< what was assumed or ignored, for people
};

/// Text of config.json for a model of this configuration whose tensors are written as `type`.
std::string exchange_config_text(const ModelConfig& model, const Tokenization& text, safetensors::Type type);

/// What readers of the published GAU-α would compute otherwise than this model was trained: "" when nothing.
std::string unknown_to_others(const ModelConfig& model);

/// Reads the text of config.json; `sizes` holds what the tensors say and is what an absent key means. Throws Error(kData)
/// naming `path` and the key for a value of the wrong type, one that contradicts the tensors, and settings that no model here
/// has.
ExchangeConfig parse_exchange_config(std::string_view text, const ModelConfig& sizes, const std::string& path);

/// Tokens that a line of vocab.txt cannot hold: they have a line end in them.
std::map<std::int64_t, std::string> rows_beyond_lines(const std::vector<std::string>& vocabulary);

}  // namespace gau
