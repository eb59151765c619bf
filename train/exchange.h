// Models in the Hugging Face layout of GAU-α: a directory with model.safetensors, config.json and vocab.txt, as
// GAUAlphaForMaskedLM saves it. Weights lie as they do here (rows are outputs), under the same names. docs/exchange.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/model_io.h"
#include "train/safetensors.h"

namespace gau {

struct ExchangeExport {
  std::int64_t tensors = 0;
  safetensors::Rounding rounding;
};

/// Writes a model as such a directory, whole or not at all. A directory that is there must be empty, or with `overwrite` hold
/// nothing but what an export writes (Error(kUsage) otherwise). A tied head is written as a tensor of its own, a copy. Throws
/// Error(kData) naming the tensor for a value beyond the type, Error(kIo) with path and errno text.
ExchangeExport export_model(const std::string& directory, const LoadedModel& loaded, safetensors::Type type, bool overwrite);

struct ExchangeOptions {
  std::string tokenizer{};                    ///< instead of what config.json says; "": that
  SpecialNames specials{"", "", "", "", ""};  ///< likewise, each of them
  bool ignore_extra = false;                  ///< leave out tensors that the model has no place for, instead of refusing them
};

struct ExchangeImport {
  LoadedModel loaded;
  std::vector<std::string> dtypes;   ///< element types of the tensors, sorted
  std::vector<std::string> ignored;  ///< tensors left out
  std::vector<std::string> notes;    ///< what was assumed, for people
};

/// Reads such a directory, or a safetensors file with config.json and vocab.txt beside it. Widening to float32 is exact. Throws
/// Error(kData) naming file, key or tensor for all that safetensors::Reader refuses, a missing, extra or wrong-shaped tensor, a
/// value that is not finite, a head that differs from the embedding that it should be, a vocabulary of another size.
ExchangeImport import_model(const std::string& source, const ExchangeOptions& options = {});

/// True for a directory that holds model.safetensors and is no run and no checkpoint.
bool is_exchange_directory(const std::string& path);

/// Makes sure that `path` may become an output directory of files `names`: it is not there, empty, or with `overwrite` holds
/// nothing else. Throws Error(kUsage) naming what is in the way.
void check_output_directory(const std::string& path, const std::vector<std::string>& names, bool overwrite);

}  // namespace gau
