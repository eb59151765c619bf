// A corpus and a configuration small enough for tests that train.
#pragma once

#include <string>
#include <vector>

#include "data/prepare.h"
#include "tests/train/scratch.h"
#include "train/config.h"

namespace gau {

/// The verses of tests/data/sample.txt, a document each, tokens are characters.
inline std::string small_corpus(const Scratch& scratch) {
  PrepareOptions options;
  options.inputs = {GAU_SOURCE_DIR "/tests/data/sample.txt"};
  options.output = scratch.file("corpus.h5");
  options.fractions.valid = 0.1;
  options.fractions.test = 0.1;
  prepare(options);
  return options.output;
}

/// A two-layer model at length 32, 8 sequences a batch; `settings` as for --set.
inline Config small_config(const std::string& corpus, const std::string& output,
                           const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {
      "data.corpus=" + corpus, "train.output=" + output, "model.layers=2",    "model.hidden=32",
      "model.intermediate=48", "model.key_size=16",      "model.dropout=0.1", "model.attention_dropout=0.1",
      "data.length=32",        "data.batch=8",           "optim.steps=12",    "train.eval_every=4",
      "train.save_every=3",    "train.keep=20"};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_config("", "test", all);
}

}  // namespace gau
