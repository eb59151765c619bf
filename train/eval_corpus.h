// The documents that an evaluation reads out of a corpus.
#pragma once

#include <optional>
#include <string>

#include "data/corpus.h"
#include "train/evaluator.h"
#include "train/model_io.h"

namespace gau {

/// The split asked for, else test, else validation. Throws Error(kData) when that split holds no tokens, or when there is
/// neither: training documents are evaluated only on request.
Split choose_split(const Corpus& corpus, const std::optional<Split>& wanted);

/// All documents of a split, in memory.
EvalCorpus read_eval_corpus(const Corpus& corpus, Split split);

/// Throws Error(kData) unless the ids of `ids_of` (a file, with its tokens by id) mean to the model what they meant in
/// training: equal vocabularies, or at least ids that the model has when one of the two does not say.
void check_vocabulary(const ModelConfig& config, const Tokenization& text, const std::string& model,
                      const std::vector<std::string>& vocabulary, const std::string& corpus);

}  // namespace gau
