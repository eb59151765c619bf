// --init-from: start a model from the parameters of another.
#pragma once

#include <string>

#include "layers/model.h"
#include "train/model_io.h"

namespace gau {

/// Throws Error(kData) with `where` and the first row that differs, unless a model's vocabulary is that of the corpus. Warns
/// when the model brought none.
void check_vocabulary(const std::string& where, const Tokenization& model, const Tokenization& corpus);

/// Copies into `model` (initialised before) every parameter that `source` (a run, checkpoint or model.h5) also has. The source
/// may have more layers (the first ones are taken), another attention kind, law or position method; what only the new model has
/// keeps its initial value, and that is logged. Throws Error(kData) for another vocabulary, fewer layers or another shape,
/// naming both sides.
void init_from(const std::string& source, const Tokenization& text, Model& model);

}  // namespace gau
