// The configuration: precedence, the grammar of numbers, names, contradictions, and the way back from its own output.
#include "train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/errors.h"
#include "tests/train/scratch.h"
#include "train/config_keys.h"

namespace gau {
namespace {

using testing::HasSubstr;

Error file_error(const std::string& text) {
  return error_of([&] { parse_config(text, "c.toml"); });
}

Error setting_error(const std::string& setting) {
  return error_of([&] { parse_config("", "c.toml", {setting}); });
}

TEST(Config, PrecedenceIsDefaultFileEnvironmentSetting) {
  const std::string text = "[optim]\nlr = 1e-3\nclip = 2\nsteps = 300\n";
  const Environment environment{{"GAU_OPTIM_LR", "1e-4"}, {"GAU_OPTIM_CLIP", "3"}};
  const Config config = parse_config(text, "c.toml", {"optim.lr=1E-5"}, environment);
  EXPECT_EQ(config.optim.lr, 1e-5);
  EXPECT_EQ(config.optim.clip, 3);
  EXPECT_EQ(config.optim.steps, 300);
  EXPECT_EQ(config.data.batch, Config{}.data.batch);
}

TEST(Config, ReadsEveryKindOfValue) {
  const Config config = parse_config(R"(
    [model]
    layers = 6
    tied = false
    [attention]
    kind = "cosine"
    law = "infoscale"
    [data]
    corpus = "some dir/词.h5"
    length = 128
    [optim]
    name = "lamb"
    betas = [0.8, 0.95]
    schedule = "piecewise"
    points = "0:1, 100:0.5"
    [eval]
    lengths = [64, 128,
               256]
  )",
                                     "c.toml");
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_FALSE(config.model.tied);
  EXPECT_EQ(config.model.attention.kind, AttentionKind::kCosine);
  EXPECT_EQ(config.model.attention.law, "infoscale");
  EXPECT_EQ(config.model.attention.train_length, 128);
  EXPECT_EQ(config.data.corpus, "some dir/词.h5");
  EXPECT_EQ(config.optim.betas[1], 0.95);
  EXPECT_EQ(config.optim.points, (SchedulePoints{{0, 1.0}, {100, 0.5}}));
  EXPECT_EQ(config.eval.lengths, (std::vector<std::int64_t>{64, 128, 256}));
}

TEST(Config, NumbersInInlineTablesAreFoundBehindOtherText) {
  const Config config = parse_config("data = { corpus = \"词 é\", mask_prob = 0.25, length = +32 } # 7\n", "c.toml");
  EXPECT_EQ(config.data.mask_prob, 0.25);
  EXPECT_EQ(config.data.length, 32);
}

TEST(Config, LambHasAnEpsilonOfItsOwnUnlessOneIsSet) {
  EXPECT_EQ(parse_config("[optim]\nname = \"lamb\"\n", "c").optim.eps, 1e-6);
  EXPECT_EQ(parse_config("[optim]\nname = \"lamb\"\neps = 1e-8\n", "c").optim.eps, 1e-8);
  EXPECT_EQ(parse_config("", "c").optim.eps, 1e-8);
}

class GoodReal : public testing::TestWithParam<std::pair<const char*, double>> {};
TEST_P(GoodReal, MeansTheSameEverywhere) {
  const auto [text, value] = GetParam();
  EXPECT_EQ(parse_config(std::string("[optim]\nlr = ") + text + "\n", "c").optim.lr, value);
  EXPECT_EQ(parse_config("", "c", {std::string("optim.lr=") + text}).optim.lr, value);
  EXPECT_EQ(parse_config("", "c", {}, {{"GAU_OPTIM_LR", text}}).optim.lr, value);
}
INSTANTIATE_TEST_SUITE_P(Config, GoodReal,
                         testing::Values(std::pair{"1e-4", 1e-4}, std::pair{"1E-4", 1e-4}, std::pair{"0.5", 0.5},
                                         std::pair{"2", 2.0}, std::pair{"+1.5e+2", 150.0}, std::pair{"1e06", 1e6}));

class BadReal : public testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(BadReal, IsRefusedEverywhere) {
  const auto [text, reason] = GetParam();
  EXPECT_EQ(file_error(std::string("[optim]\nclip = 1\nlr = ") + text + "\n").code(), ExitCode::kData) << text;
  EXPECT_THAT(file_error(std::string("[optim]\nclip = 1\nlr = ") + text + "\n").what(), HasSubstr("c.toml:3:"));
  const Error setting = setting_error(std::string("optim.lr=") + text);
  EXPECT_EQ(setting.code(), ExitCode::kUsage) << text;
  EXPECT_THAT(setting.what(), HasSubstr(reason));
  EXPECT_THAT(setting.what(), HasSubstr("optim.lr"));
  EXPECT_EQ(error_of([&] { parse_config("", "c", {}, {{"GAU_OPTIM_LR", text}}); }).code(), ExitCode::kUsage) << text;
}
INSTANTIATE_TEST_SUITE_P(Config, BadReal,
                         testing::Values(std::pair{".5", "before the point"}, std::pair{"5.", "follow the point"},
                                         std::pair{"1_000", "underscores"}, std::pair{"0x10", "decimal"},
                                         std::pair{"nan", "finite"}, std::pair{"inf", "finite"}, std::pair{"-inf", "finite"},
                                         std::pair{"1,5", "comma"}, std::pair{"", "empty"}, std::pair{"1e", "not a number"},
                                         std::pair{"1e400", "too large"}, std::pair{"01", "leading zero"},
                                         std::pair{"1 2", "not a number"}, std::pair{"-1", "out of range"},
                                         std::pair{"0", "out of range"}, std::pair{"fast", "not a number"}));

TEST(Config, BadIntegers) {
  for (const char* text : {"99999999999999999999", "1e3", "2.0", "0x10", "1_000", "0", "-4", "", "\"7\"", "true"})
    EXPECT_EQ(file_error(std::string("[optim]\nsteps = ") + text + "\n").code(), ExitCode::kData) << text;
  EXPECT_THAT(setting_error("optim.steps=99999999999999999999").what(), HasSubstr("64 bits"));
  EXPECT_THAT(setting_error("optim.steps=1e3").what(), HasSubstr("whole number"));
}

TEST(Config, ANumberInQuotesIsNoNumber) {
  EXPECT_THAT(file_error("[optim]\nlr = \"1e-4\"\n").what(), HasSubstr("a number is wanted, not text"));
  EXPECT_THAT(file_error("[attention]\nkind = 3\n").what(), HasSubstr("text in quotes is wanted"));
}

TEST(Config, UnknownNamesAreRefusedWithTheNearest) {
  const Error key = file_error("[optim]\n\nlearning_rtae = 1e-4\n");
  EXPECT_EQ(key.code(), ExitCode::kData);
  EXPECT_THAT(key.what(), HasSubstr("c.toml:3: unknown key 'learning_rtae' in [optim]: did you mean 'optim.lr'?"));
  EXPECT_THAT(file_error("[model]\nlayrs = 2\n").what(), HasSubstr("did you mean 'layers'?"));
  EXPECT_THAT(file_error("[optm]\nlr = 2\n").what(), HasSubstr("c.toml:1: unknown table [optm]: did you mean [optim]?"));
  EXPECT_THAT(file_error("[model]\nlr = 2\n").what(), HasSubstr("belongs to [optim]"));
  EXPECT_THAT(file_error("[zzz]\nlr = 2\n").what(), HasSubstr("known are model, attention"));
  EXPECT_THAT(file_error("lr = 2\n").what(), HasSubstr("outside of a table"));
  const Error setting = setting_error("optim.warmpu=3");
  EXPECT_EQ(setting.code(), ExitCode::kUsage);
  EXPECT_THAT(setting.what(), HasSubstr("did you mean 'warmup'?"));
  EXPECT_EQ(setting_error("lr").code(), ExitCode::kUsage);
  EXPECT_EQ(setting_error("lr=2").code(), ExitCode::kUsage);
}

TEST(Config, UnknownValuesListTheKnown) {
  EXPECT_THAT(file_error("[optim]\nname = \"adam\"\n").what(), HasSubstr("adamw, lamb"));
  EXPECT_EQ(file_error("[attention]\nkind = \"cosin\"\n").code(), ExitCode::kData);
  EXPECT_EQ(file_error("[attention]\nlaw = \"infoscal\"\n").code(), ExitCode::kData);
  EXPECT_EQ(file_error("[eval]\nmethods = \"ropee\"\n").code(), ExitCode::kData);
}

TEST(Config, AnUnknownVariableThatLooksLikeAKeyWarns) {
  testing::internal::CaptureStderr();
  const Environment environment{{"GAU_OPTIM_LRR", "1"}, {"GAU_SOMETHING_ELSE_ENTIRELY", "1"}};
  parse_config("", "c", {}, environment);
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("GAU_OPTIM_LRR"));
  EXPECT_THAT(warnings, HasSubstr("did you mean GAU_OPTIM_LR?"));
  EXPECT_THAT(warnings, testing::Not(HasSubstr("ENTIRELY")));
}

TEST(Config, NotTomlNamesTheLine) {
  EXPECT_THAT(file_error("[optim]\nlr = = 3\n").what(), HasSubstr("c.toml:2:"));
  EXPECT_THAT(file_error("[optim]\nlr = 3\nlr = 4\n").what(), HasSubstr("c.toml:3:"));
}

TEST(Config, WarmupMustLeaveSteps) {
  for (const char* warmup : {"100", "101", "1e9"}) {
    const Error error = file_error(std::string("[optim]\nsteps = 100\nwarmup = ") + warmup + "\n");
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), HasSubstr("100"));
  }
  EXPECT_EQ(file_error("[optim]\nwarmup = 1.5\n").code(), ExitCode::kData);
  EXPECT_EQ(parse_config("[optim]\nsteps = 100\nwarmup = 99\n", "c").optim.warmup_steps(), 99);
  EXPECT_EQ(parse_config("[optim]\nsteps = 1\nwarmup = 0.5\n", "c").optim.warmup_steps(), 0);
  EXPECT_EQ(parse_config("[optim]\nsteps = 1000\nwarmup = 0.1\n", "c").optim.warmup_steps(), 100);
}

TEST(Config, AContradictionIsTheFaultOfWhoMadeIt) {
  const std::string text = "[optim]\nsteps = 100\nwarmup = 20\n";
  EXPECT_EQ(error_of([&] { parse_config(text, "c", {"optim.warmup=100"}); }).code(), ExitCode::kUsage);
  EXPECT_EQ(file_error("[optim]\nsteps = 100\nwarmup = 100\n").code(), ExitCode::kData);
  EXPECT_EQ(file_error("[model]\nkey_size = 63\n").code(), ExitCode::kData);
  EXPECT_EQ(file_error("[train]\nshards = 6\n").code(), ExitCode::kData);
  EXPECT_EQ(file_error("[train]\ndtype = \"i32\"\n").code(), ExitCode::kData);
  for (const char* key : {"sequence_parallel = 0", "sequence_exchange = \"all\"", "wire = \"f64\"",
                          "wire = \"bf16\"\ndtype = \"f64\"", "skip = \"some\"", "skip = \"1.5\""}) {
    EXPECT_EQ(file_error(std::string("[train]\n") + key + "\n").code(), ExitCode::kData) << key;
  }
}

TEST(Config, SequencesAreSharedByANumberOfRanks) {
  EXPECT_EQ(parse_config("[train]\nsequence_parallel = 4\n", "c").train.sequence_parallel, 4);
  EXPECT_EQ(parse_config("[train]\nsequence_exchange = \"ring\"\n", "c").train.sequence_exchange, SequenceExchange::kRing);
  EXPECT_EQ(parse_config("[train]\nsequence_parallel = false\n", "c").train.sequence_parallel, 1) << "an earlier run's file";
  EXPECT_EQ(file_error("[train]\nsequence_parallel = true\n").code(), ExitCode::kData);
}

TEST(Config, TheEffectiveConfigurationComesBackBitByBit) {
  const Config config = parse_config(
      "", "c",
      {"optim.lr=0.1234567890123456789", "data.corpus=\"a b\" \\ 词\t\"", "optim.betas=[0.3333333333333333, 0.9999999999]",
       "optim.points=0:1,7:0.1", "optim.schedule=piecewise", "eval.lengths=64,4096", "train.dtype=f64", "attention.kind=cosine",
       "data.masking=corpus", "optim.clip=1e-7"});
  const std::string text = to_toml(config);
  const Config again = parse_config(text, "again");
  EXPECT_EQ(config_values(again, false), config_values(config, false));
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.optim.lr, 0.1234567890123456789);
  EXPECT_EQ(again.data.corpus, "\"a b\" \\ 词\t\"");
}

TEST(Config, DefaultsAreInRange) {
  EXPECT_NO_THROW(parse_config(to_toml(Config{}), "defaults"));
  for (const auto& key : config_keys()) EXPECT_THAT(config_help(), HasSubstr(key.name));
}

TEST(Config, PortableValuesSayNothingOfTheMachine) {
  const auto values = config_values(parse_config("", "c", {"data.corpus=/somewhere/c.h5", "train.threads=7"}), true);
  EXPECT_FALSE(values.contains("data.corpus"));
  EXPECT_FALSE(values.contains("train.threads"));
  EXPECT_FALSE(values.contains("train.output"));
  EXPECT_TRUE(values.contains("optim.lr"));
}

TEST(Config, DifferencesNameOldAndNew) {
  const auto before = config_values(Config{}, true);
  const Config now = parse_config("[optim]\nclip = 3\n", "c");
  const auto differences = config_differences(before, now);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0], "optim.clip: 1.0 -> 3.0");
}

TEST(Config, AnEmptyFileIsAllDefaults) {
  const Scratch scratch;
  std::ofstream(scratch.file("c.toml")).flush();
  EXPECT_EQ(to_toml(load_config(scratch.file("c.toml"), {}, {})), to_toml(parse_config("", "c.toml", {}, {})));
}

TEST(Config, AMissingFileIsAnIoError) {
  EXPECT_EQ(error_of([] { load_config("/nowhere/c.toml"); }).code(), ExitCode::kIo);
}

}  // namespace
}  // namespace gau
