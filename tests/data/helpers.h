// What the tests of data share: a directory of their own, files in it, the text of an expected error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "framework/error.h"

namespace gau {

class DataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "gau-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// A corpus of documents of the given lengths, tokens 5, 6, 7, … counted on through all documents modulo `symbols`.
  std::string write_corpus(const std::string& name, const std::vector<std::int64_t>& lengths, const std::vector<Split>& splits,
                           std::int32_t symbols = 50) const {
    std::vector<std::string> names;
    for (std::int32_t i = 0; i < symbols; ++i) names.push_back("s" + std::to_string(i));
    const NameTokenizer tokenizer(Vocabulary::made(names, {}));
    CorpusWriter writer(path(name), tokenizer, false);
    std::int32_t next = 0;
    for (const std::int64_t length : lengths) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
      for (std::int32_t& token : tokens) token = 5 + next++ % symbols;
      writer.add(tokens);
    }
    writer.publish(splits, "{}", "{}");
    return path(name);
  }

  std::string directory_;
};

/// Runs `work`, expects an Error of `code` on one line, returns its text.
inline std::string error_of(ExitCode code, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace gau
