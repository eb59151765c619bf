#include "train/init_from.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/kernels.h"
#include "framework/log.h"

namespace gau {

void check_vocabulary(const std::string& where, const Tokenization& model, const Tokenization& corpus) {
  if (model.vocabulary.empty()) {
    log::warn("{}: holds no vocabulary: taking it on trust that its ids mean the same as the corpus's", where);
    return;
  }
  const auto [theirs, ours] =
      std::mismatch(model.vocabulary.begin(), model.vocabulary.end(), corpus.vocabulary.begin(), corpus.vocabulary.end());
  if (theirs == model.vocabulary.end() && ours == corpus.vocabulary.end()) return;
  fail(
      ExitCode::kData,
      "{}: another vocabulary ({} entries against the corpus's {}, first different at row {}); prepare the corpus with --vocab "
      "from that model",
      where, model.vocabulary.size(), corpus.vocabulary.size(), theirs - model.vocabulary.begin());
}

void init_from(const std::string& source, const Tokenization& text, Model& model) {
  const std::string path = resolve_model_path(source);
  const LoadedModel loaded = load_model(path, model.dtype());
  check_vocabulary("--init-from " + path, loaded.text, text);
  const ModelConfig& theirs = loaded.model.config();
  check(theirs.layers >= model.config().layers, ExitCode::kData,
        "--init-from {}: it has {} layers, fewer than [model] layers = {}", path, theirs.layers, model.config().layers);
  std::int64_t copied = 0;
  for (const Parameter& parameter : model.parameters().list()) {
    if (!loaded.model.parameters().contains(parameter.name)) {
      log::info("--init-from: {} is not in {}; it keeps its initial value", parameter.name, path);
      continue;
    }
    const Parameter& from = loaded.model.parameters().find(parameter.name);
    check(from.shape == parameter.shape, ExitCode::kData, "--init-from {}: {} is {} there and {} here", path, parameter.name,
          from.shape.str(), parameter.shape.str());
    kernels::convert(from.variable.value(), parameter.variable.value());
    ++copied;
  }
  log::info("took {} tensors of {}{}", copied, path,
            theirs.layers > model.config().layers
                ? fmt::format(" (the first {} of its {} layers)", model.config().layers, theirs.layers)
                : "");
}

}  // namespace gau
