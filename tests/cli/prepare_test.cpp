// gau prepare as a user meets it: report, exit codes, one line for an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace gau {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PrepareCommand : public ::testing::Test {
 protected:
  std::string quoted(const std::string& name) const { return "'" + directory_.file(name) + "'"; }
  TestDirectory directory_;
};

TEST_F(PrepareCommand, JsonReport) {
  directory_.write("bad.txt", std::string("good one\nbad \x92 byte\nnul \0 here\ngood two\n", 40));
  const ProgramResult result = run_gau("prepare " + quoted("bad.txt") + " -o " + quoted("c.h5") + " --json");
  EXPECT_EQ(result.code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["documents"], 4);
  EXPECT_EQ(report["files"][0]["invalid_bytes"], 1);
  EXPECT_THAT(std::string(report["files"][0]["invalid_places"][0]), HasSubstr("bad.txt:2: byte 5: 0x92"));
  EXPECT_THAT(result.err, HasSubstr("bad.txt:2: byte 5: 0x92"));
  EXPECT_TRUE(std::filesystem::exists(directory_.file("c.h5")));
}

TEST_F(PrepareCommand, StandardInputAndPipes) {
  directory_.write("a.txt", "one\ntwo\n");
  EXPECT_EQ(run_gau("prepare " + quoted("a.txt") + " -o " + quoted("file.h5")).code, 0);
  const std::string from_standard_input =
      "cat " + quoted("a.txt") + " | '" GAU_PROGRAM "' prepare - --quiet -o " + quoted("stdin.h5") + " 2>/dev/null";
  EXPECT_EQ(std::system(from_standard_input.c_str()), 0);
  const ProgramResult pipe =
      run_gau("prepare " + quoted("fifo") + " -o " + quoted("fifo.h5"),
              "mkfifo " + quoted("fifo") + "; timeout 60 cp " + quoted("a.txt") + " " + quoted("fifo") + " &");
  EXPECT_EQ(pipe.code, 0) << pipe.err;
  for (const char* other : {"stdin.h5", "fifo.h5"}) {
    EXPECT_EQ(read_text(directory_.path() / other), read_text(directory_.path() / "file.h5")) << other;
  }
}

TEST_F(PrepareCommand, RefusalsAreOneLineWithTheirCode) {
  directory_.write("a.txt", "text\n");
  directory_.write("b.jsonl", "{\"content\":\"x\"}\n");
  directory_.write("blank.txt", "\n\n");
  struct Case {
    std::string arguments;
    int code;
    std::string message;
  };
  const std::string out = " -o " + quoted("c.h5");
  const std::vector<Case> cases = {
      {quoted("b.jsonl") + " --format jsonl" + out, 65, "b.jsonl:1: no field \"text\" (has: content); use --field content"},
      {quoted("blank.txt") + out + " --quiet", 65, "no usable text"},
      {quoted("absent.txt") + out, 74, "absent.txt: cannot be opened"},
      {quoted("a.txt"), 64, "no output was named"},
      {quoted("a.txt") + " -o " + quoted("a.txt"), 64, "would be overwritten"},
      {quoted("a.txt") + out + " --tokenizer wordpiece", 64, "known: char, byte"},
      {quoted("a.txt") + out + " --format csv", 64, "known: lines, document, jsonl, fasta"},
      {quoted("a.txt") + out + " --valid 2", 64, "--valid 2"},
      {quoted("a.txt") + out + " --formt lines", 64, "--formt"},
      {"--synthetic markov " + quoted("a.txt") + out, 64, "--synthetic makes its own data"},
      {"--synthetic copy" + out, 64, "known: recall, markov"},
      {quoted("a.txt") + " -o /dev/full", 74, "not a regular file"},
  };
  for (const Case& c : cases) {
    const ProgramResult result = run_gau("prepare " + c.arguments);
    EXPECT_EQ(result.code, c.code) << c.arguments;
    EXPECT_THAT(result.err, HasSubstr(c.message)) << c.arguments;
    EXPECT_TRUE(result.out.empty()) << c.arguments;
    EXPECT_FALSE(std::filesystem::exists(directory_.file("c.h5"))) << c.arguments;
  }
  EXPECT_EQ(read_text(directory_.path() / "a.txt"), "text\n");
}

TEST_F(PrepareCommand, SyntheticAndHelp) {
  const ProgramResult made = run_gau("prepare --synthetic recall --documents 10 --length 32 --json -o " + quoted("r.h5"));
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(json::parse(made.out)["tokens"], 320);
  const ProgramResult help = run_gau("prepare --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("--on-invalid"), HasSubstr("--synthetic")));
}

}  // namespace
}  // namespace gau
