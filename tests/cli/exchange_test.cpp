// gau export, gau import and gau verify as a user runs them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/cli/tiny_run.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ExchangeCommands : public TinyRun {
 protected:
  std::string quoted(const std::string& name) const { return "'" + directory_.file(name) + "'"; }
  ProgramResult gau(const std::string& command, const std::string& name, const std::string& more = "") const {
    return run_gau(command + " " + quoted(name) + " " + more);
  }
  void damage(const std::string& name, std::size_t at) const {
    std::string bytes = read_text(directory_.file(name));
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    directory_.write(name, bytes);
  }
};

TEST_F(ExchangeCommands, ThereAndBackTheModelIsTheSame) {
  ASSERT_EQ(gau("export", "run", "-o " + quoted("hf")).code, 0);
  for (const std::string back : {"back", "back.h5"}) {
    const auto imported = gau("import", "hf", "--json -o " + quoted(back));
    ASSERT_EQ(imported.code, 0) << imported.err;
    EXPECT_EQ(json::parse(imported.out)["dtypes"], json({"F32"}));
    EXPECT_EQ(info(back)["digest"], info("run/checkpoints/best/model.h5")["digest"]);
    EXPECT_THAT(gau("verify", back).out, HasSubstr(": ok: model, "));
  }
  EXPECT_THAT(gau("fill", "hf", "'the [MASK]'").err, HasSubstr("gau import"));
  EXPECT_EQ(info("hf")["kind"], "exchange");
  EXPECT_EQ(info("hf")["model"]["L_train"], 16);
  EXPECT_EQ(info("hf/model.safetensors")["kind"], "safetensors");
  const std::string evaluation = "--lengths 16 --json --data " + quoted("corpus.h5");
  const auto of_run = gau("eval", "run", evaluation), of_back = gau("eval", "back", evaluation);
  ASSERT_EQ(of_back.code, 0) << of_back.err;
  EXPECT_EQ(json::parse(of_run.out)["results"][0]["loss"], json::parse(of_back.out)["results"][0]["loss"]);
  EXPECT_EQ(run_gau("fill " + quoted("back") + " 'the [MASK]'").code, 0);
}

TEST_F(ExchangeCommands, NarrowTypesSayWhatTheyChanged) {
  const auto exported = gau("export", "run", "--dtype bf16 --json -o " + quoted("hf"));
  ASSERT_EQ(exported.code, 0);
  EXPECT_GT(json::parse(exported.out)["rounded"], 0);
  EXPECT_THAT(exported.err, HasSubstr("bf16: rounding changed"));
  ASSERT_EQ(gau("import", "hf", "-o " + quoted("back")).code, 0);
  EXPECT_EQ(json::parse(gau("export", "back", "--dtype bf16 --json -o " + quoted("again")).out)["rounded"], 0);
  EXPECT_EQ(read_text(directory_.file("hf/model.safetensors")), read_text(directory_.file("again/model.safetensors")));
  EXPECT_EQ(gau("export", "run", "--dtype f8 -o " + quoted("no")).code, 64);
}

TEST_F(ExchangeCommands, OutputsAreReplacedOnlyWhenTold) {
  const std::string into = "--quiet -o " + quoted("hf"), model = "--quiet -o " + quoted("back.h5");
  ASSERT_EQ(gau("export", "run", into).code, 0);
  EXPECT_EQ(gau("export", "run", into).code, 64);
  EXPECT_EQ(gau("export", "run", into + " --overwrite").code, 0);
  ASSERT_EQ(gau("import", "hf", model).code, 0);
  EXPECT_EQ(gau("import", "hf", model).code, 64);
  EXPECT_EQ(gau("import", "hf", model + " --overwrite").code, 0);
  const auto onto_run = gau("import", "hf", "--overwrite -o " + quoted("run"));
  EXPECT_EQ(onto_run.code, 64);
  EXPECT_THAT(onto_run.err, HasSubstr("--overwrite would remove"));
  EXPECT_EQ(gau("export", "run", "-o " + quoted("none/hf")).code, 74);
}

TEST(ExchangeFaults, AreOneLineAndTheRightCode) {
  const TestDirectory directory;
  const std::string out = " -o '" + directory.file("out") + "'";
  ASSERT_EQ(mkfifo(directory.file("pipe").c_str(), 0600), 0);
  fs::create_directory(directory.file("empty"));
  directory.write("x", "abcd");
  for (const auto& [name, code, text] : {std::tuple{"x", 65, "too short"},
                                         {"pipe", 65, "no regular file"},
                                         {"empty", 65, "holds no model.safetensors"},
                                         {"absent", 74, "no such"}}) {
    const auto result = run_gau("import '" + directory.file(name) + "'" + out);
    EXPECT_EQ(result.code, code) << name;
    EXPECT_THAT(result.err, AllOf(HasSubstr(directory.file(name)), HasSubstr(text)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_FALSE(fs::exists(directory.file("out")));
  }
}

TEST_F(ExchangeCommands, VerifySaysWhatIsWrongWithWhat) {
  const auto good = run_gau("verify " + quoted("run") + " " + quoted("corpus.h5"));
  EXPECT_EQ(good.code, 0) << good.out;
  for (const char* thing :
       {"run/config.toml: ok", "run/metrics.jsonl: ok", "step-2: ok: checkpoint, step 2", "step-6: ok: checkpoint",
        "latest: ok: link, points to step-6", "corpus.h5: ok: corpus, 60 documents"})
    EXPECT_THAT(good.out, HasSubstr(thing));
  fs::create_directory(directory_.file("run/checkpoints/.step-9.tmp"));
  fs::remove_all(directory_.file("run/checkpoints/step-6"));
  damage("run/checkpoints/step-2/model.h5", 5000);
  damage("run/checkpoints/step-4/manifest.json", 100);
  const auto bad = gau("verify", "run");
  EXPECT_EQ(bad.code, 65);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("step-2: BAD"), HasSubstr("step-4: BAD"),
                             HasSubstr("latest: BAD: points to step-6, which is not there"),
                             HasSubstr(".step-9.tmp: ok: leftover"), Not(HasSubstr("step-6: ok"))));
  fs::remove(directory_.file("run/checkpoints/step-3/model.h5"));
  ASSERT_EQ(mkfifo(directory_.file("run/checkpoints/step-3/model.h5").c_str(), 0600), 0);
  EXPECT_THAT(gau("verify", "run").out, HasSubstr("step-3: BAD: model.h5: is no regular file"));
  const json told = json::parse(gau("verify", "run", "--json").out);
  EXPECT_EQ(told["ok"], false);
  EXPECT_GT(told["things"].size(), 4u);
  EXPECT_THAT(gau("verify", "run", "--quiet").out, Not(HasSubstr(": ok")));
}

TEST_F(ExchangeCommands, VerifyTakesEveryKindOfFile) {
  ASSERT_EQ(gau("export", "run", "--quiet -o " + quoted("hf")).code, 0);
  for (const char* name :
       {"hf", "hf/model.safetensors", "run/config.toml", "run/checkpoints/best", "run/checkpoints/best/optimizer-0.h5"})
    EXPECT_EQ(gau("verify", name).code, 0) << name;
  EXPECT_EQ(info("run/checkpoints/best/optimizer-0.h5")["kind"], "optimizer");
  EXPECT_EQ(gau("verify", "absent").code, 74);
  damage("hf/config.json", 20);
  EXPECT_EQ(gau("verify", "hf").code, 65);
  damage("corpus.h5", 6000);
  EXPECT_EQ(gau("verify", "corpus.h5").code, 65);
  directory_.write("x", "abcd");
  EXPECT_EQ(gau("verify", "x").code, 65);
}

}  // namespace
}  // namespace gau
