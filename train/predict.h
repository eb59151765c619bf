// The forward pass as data: ids in, logits (and hidden states, and attention weights) of every position out, in HDF5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "layers/model.h"

namespace gau {

/// Sequences of one width, row-major [rows, length].
struct PredictInputs {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> mask;   ///< 1 = a token, 0 = padding; empty: all tokens. Padding may lie anywhere.
  std::vector<std::int32_t> types;  ///< empty: all 0
};

/// Reads input_ids, attention_mask and type_ids (the last two optional; int, n × L) from the root of an HDF5 file or from
/// /inputs. Throws Error(kData) naming file and dataset for a missing one, another rank or shape, or a mask that is not 0 or 1.
PredictInputs read_predict_inputs(const std::string& path);

/// A row a line of a text file ("-": standard input), padded to the longest line; texts of special tokens ("[MASK]") become
/// their ids. An empty line is a row of padding. Throws Error(kData) when no line has a token.
PredictInputs predict_inputs_of_text(const std::string& path, const Tokenizer& tokenizer);

/// Throws Error(kData) naming `where`, row, column and value of the first id or type that the model does not have.
void check_predict_inputs(const PredictInputs& inputs, const ModelConfig& config, const std::string& where);

struct PredictOptions {
  bool hidden = false;
  bool attention = false;
  std::int64_t batch_tokens = 8192;  ///< tokens of a forward pass (at least one row)
};

/// Writes /logits [n, L, V], /hidden [layers + 1, n, L, H] and /attention [layers, n, L, L] on demand, and the /input_ids and
/// /attention_mask that they belong to. Reals have the model's type. Throws Error(kIo) when memory will not do or the file
/// cannot be written. Returns the file's digest.
std::uint64_t predict(const Model& model, const Method& method, const PredictInputs& inputs, const PredictOptions& options,
                      const std::string& out_path);

}  // namespace gau
