// A run of a few steps over a text made here, by the program itself.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"

namespace gau {

class TinyRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int line = 0; line < 60; ++line) text += "the quick brown fox " + std::to_string(line) + " jumps over the lazy dog\n";
    const std::string source = directory_.write("text.txt", text);
    const auto prepared = run_gau("prepare --quiet '" + source + "' -o '" + corpus_ + "'");
    ASSERT_EQ(prepared.code, 0) << prepared.err;
    const auto trained = train("run");
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  ProgramResult train(const std::string& name, const std::string& more = "") const {
    const std::string config =
        directory_.write("c.toml",
                         "[model]\nlayers = 1\nhidden = 16\nintermediate = 16\nkey_size = 8\n[data]\nlength = 16\nbatch = 8\n"
                         "[optim]\nsteps = 6\n[train]\neval_every = 3\nsave_every = 2\nkeep = 9\n");
    return run_gau("train --quiet '" + config + "' --set data.corpus='" + corpus_ + "' --set train.output='" +
                   directory_.file(name) + "' " + more);
  }
  nlohmann::json info(const std::string& name) const {
    return nlohmann::json::parse(run_gau("info --json '" + directory_.file(name) + "'").out);
  }

  TestDirectory directory_;
  std::string corpus_ = directory_.file("corpus.h5");
};

}  // namespace gau
