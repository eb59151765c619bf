#include "train/cli/run_corpus.h"

#include <filesystem>

#include "framework/error.h"
#include "framework/log.h"
#include "train/config.h"

namespace gau::cli {

std::string corpus_or_run_corpus(const std::string& data, const std::string& model) {
  if (!data.empty()) return data;
  namespace fs = std::filesystem;
  std::error_code error;
  // RUN, RUN/checkpoints/step-N, or RUN/checkpoints/step-N/model.h5.
  fs::path place = fs::absolute(model, error).lexically_normal();
  for (int up = 0; up < 4 && !error; ++up, place = place.parent_path()) {
    std::error_code absent;  // is_regular_file calls it an error
    if (!fs::is_regular_file(place / "config.toml", absent)) continue;
    const std::string corpus = load_config((place / "config.toml").string(), {}, {}).data.corpus;
    check(fs::exists(corpus, error), ExitCode::kUsage, "{}: its corpus {} is not there; give --data", model, corpus);
    log::info("corpus of the run: {}", corpus);
    return corpus;
  }
  fail(ExitCode::kUsage, "{}: is no run that names its corpus; give --data", model);
}

}  // namespace gau::cli
