// Model files: /parameters/<name> in float32 (float64 for a model trained in it), attributes of the root = model and attention
// configuration with L_train, and what turns text into ids.
//
// Files made elsewhere load too: sizes are read from the tensors, and an attribute that is absent has its default.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "layers/model.h"

namespace gau {

/// How text became the ids that a model was trained on.
struct Tokenization {
  std::string tokenizer;                ///< name of the tokenizer
  std::vector<std::string> vocabulary;  ///< token of each id; empty: the file has none
  SpecialNames specials;                ///< texts of the special tokens

  static Tokenization of(const Tokenizer& tokenizer);
  /// The tokenizer itself. Throws Error(kData) naming `where` when the file brought no vocabulary.
  std::unique_ptr<Tokenizer> make(const std::string& where) const;
};

struct LoadedModel {
  Model model;
  Tokenization text;
};

/// Writes a model file, whole or not at all; returns its digest. Throws Error(kIo) with path and errno text.
std::uint64_t save_model(const std::string& path, const Model& model, const Tokenization& text);
/// The same with `values` [parameters] in the place of the model's own, which are not read.
std::uint64_t save_model(const std::string& path, const Model& model, const Tensor& values, const Tokenization& text);

/// Reads a model file. Throws Error(kData) naming file and tensor for a missing, extra or wrong-shaped tensor, a value that is
/// not finite, an attribute that contradicts the tensors or makes no model.
LoadedModel load_model(const std::string& path, DType dtype = DType::kF32);

/// The configuration and tokenization of a model file, without its parameters.
ModelConfig read_model_config(const std::string& path);
Tokenization read_tokenization(const std::string& path);

/// Reads the parameters of a file into a model that exists, with the same checks.
void load_parameters(const std::string& path, Model& model);

/// The model file that MODEL stands for: a model.h5, a checkpoint directory, or a run directory (its best checkpoint, else
/// the latest). Throws Error(kIo) for a path that does not exist, Error(kData) for a directory without a model.
std::string resolve_model_path(const std::string& model);

}  // namespace gau
