// The corpus that a run was trained on: what --data stands for when it is left out.
#pragma once

#include <string>

namespace gau::cli {

/// `data` when it is given, else the corpus named in the config.toml of the run that `model` is or lies in. Throws
/// Error(kUsage) asking for --data when there is no such run, or its corpus is no longer there.
std::string corpus_or_run_corpus(const std::string& data, const std::string& model);

}  // namespace gau::cli
