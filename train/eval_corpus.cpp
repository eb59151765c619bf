// Reads a split, and makes sure that model and corpus speak of the same tokens.
#include "train/eval_corpus.h"

#include <algorithm>

#include "framework/error.h"
#include "train/eval_recall.h"

namespace gau {

Split choose_split(const Corpus& corpus, const std::optional<Split>& wanted) {
  if (wanted) {
    check(corpus.tokens_of(*wanted) > 0, ExitCode::kData, "{}: the {} split is empty ({} documents)", corpus.path(),
          name_of(*wanted), corpus.documents_of(*wanted).size());
    return *wanted;
  }
  for (Split split : {Split::kTest, Split::kValid}) {
    if (corpus.tokens_of(split) > 0) return split;
  }
  fail(ExitCode::kData,
       "{}: no test and no validation documents ({} training documents); prepare it with --test 0.1, or name --split train",
       corpus.path(), corpus.documents_of(Split::kTrain).size());
}

EvalCorpus read_eval_corpus(const Corpus& corpus, Split split) {
  EvalCorpus out;
  out.path = corpus.path();
  out.split = name_of(split);
  for (std::int64_t index : corpus.documents_of(split)) {
    const std::int64_t length = corpus.document_length(index);
    EvalDocument& document = out.documents.emplace_back();
    document.index = index;
    document.tokens = corpus.tokens(index, 0, length);
    if (corpus.has_labels()) document.labels = corpus.labels(index, 0, length);
  }
  const auto special = corpus.special().all();
  out.special_ids.assign(special.begin(), special.end());
  out.mask_id = corpus.special().mask;
  if (corpus.has_labels()) out.answer_choices = answer_choices(corpus.vocabulary().tokens());
  return out;
}

void check_vocabulary(const ModelConfig& config, const Tokenization& text, const std::string& model,
                      const std::vector<std::string>& vocabulary, const std::string& corpus) {
  const auto rows = static_cast<std::int64_t>(vocabulary.size());
  check(rows <= config.vocab_size, ExitCode::kData, "{}: its vocabulary has {} tokens, the model {} has {}", corpus, rows,
        model, config.vocab_size);
  if (text.vocabulary.empty()) return;
  const auto [ours, theirs] =
      std::mismatch(text.vocabulary.begin(), text.vocabulary.end(), vocabulary.begin(), vocabulary.end());
  if (ours == text.vocabulary.end() && theirs == vocabulary.end()) return;
  fail(ExitCode::kData,
       "{}: its vocabulary is not the one that {} was trained with (they differ from id {} on); prepare it with --vocab",
       corpus, model, ours - text.vocabulary.begin());
}

}  // namespace gau
