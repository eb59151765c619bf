// Parsing of method lists and what is left to the model.
#include "layers/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>

#include "framework/error.h"

namespace gau {
namespace {

ModelConfig model(std::int64_t train_length = 64, std::int64_t layers = 6) {
  ModelConfig config;
  config.layers = layers;
  config.vocab_size = 100;
  config.attention.train_length = train_length;
  return config;
}

Method resolved(const char* entry, const ModelConfig& config = model()) { return resolve(parse_method(entry), config); }
double number(const Method& method, const char* name) { return method.position->number(name).value(); }

template <class F>
void expect_error(F call, ExitCode code, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "accepted, but expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(std::string(error.what()), testing::HasSubstr(part));
  }
}

TEST(Method, JoinsTermsByPlus) {
  const Method method = parse_method("rerope:w=32;clamp=7+infoscale:train=64;count=valid+cosscale:s=64");
  EXPECT_EQ(method.name, "rerope:w=32;clamp=7+infoscale:train=64;count=valid+cosscale:s=64");
  EXPECT_EQ(method.position->kind, PositionKind::kRerope);
  EXPECT_EQ(number(method, "w"), 32);
  EXPECT_EQ(number(method, "clamp"), 7);
  EXPECT_EQ(method.law->kind, LawKind::kInfoScale);
  EXPECT_EQ(method.law->number("train"), 64);
  EXPECT_EQ(method.law->words.at("count"), "valid");
  EXPECT_EQ(method.cosine_scale, 64);
}

TEST(Method, LeavesOutWhatIsNotSaid) {
  const Method method = parse_method("logn");
  EXPECT_FALSE(method.position);
  EXPECT_FALSE(method.cosine_scale);
  EXPECT_FALSE(parse_method("rope").law);
}

TEST(Method, KnowsEveryNameOfTheContract) {
  for (const char* entry : {"rope",
                            "nope",
                            "pi:factor=3",
                            "ntk:factor=2.5",
                            "yarn:train=8;factor=3;beta_fast=32;beta_slow=1",
                            "rerope:w=8;clamp=7",
                            "leaky-rerope:w=32;k=8",
                            "alibi:m=0.0625",
                            "alibi:left=0.0625;right=0.03125",
                            "window:w=64",
                            "streaming:window=7;sinks=4;rows=4;positions=absolute",
                            "lm-infinite:window=7;sinks=5;rows=5;clamp=7",
                            "hwfa",
                            "hwfa2",
                            "pose:target=4096",
                            "random:target=4096",
                            "none",
                            "softmax-plus:base=512",
                            "softmax_plus",
                            "infoscale:train=8;clip=1;count=visible",
                            "logn:train=8;clip=0;count=valid",
                            "ssmax",
                            "calibrated",
                            "scale-invariant:tau=10",
                            "cosscale:s=64",
                            "yarn+none"}) {
    EXPECT_NO_THROW(parse_method(entry)) << entry;
  }
  EXPECT_EQ(parse_method("softmax_plus").law->kind, LawKind::kSoftmaxPlus);
  EXPECT_EQ(parse_method("lm_infinite").position->kind, PositionKind::kLmInfinite);
}

TEST(Method, RefusesUnknownNamesWithTheNearest) {
  const auto refused = [](const char* entry, const std::string& part) {
    expect_error([&] { parse_method(entry); }, ExitCode::kUsage, part);
  };
  refused("rerop", "did you mean 'rerope'");
  refused("LM-Infinit", "did you mean 'lm-infinite'");
  refused("infoscael", "did you mean 'infoscale'");
  refused("xyzzyquux", "known: rope, nope, pi");
  refused("rerope:v=3", "known: w, clamp");
  refused("yarn:beta_fats=3", "did you mean 'beta_fast'");
  refused("infoscale:count=all", "known: visible, valid");
  refused("streaming:positions=relative", "known: reindexed, absolute");
  refused("rope:w=3", "takes no values");
}

TEST(Method, RefusesWhatDoesNotGoTogether) {
  const auto refused = [](const char* entry, const std::string& part) {
    expect_error([&] { parse_method(entry); }, ExitCode::kUsage, part);
  };
  refused("rope+pi", "two position terms");
  refused("logn+infoscale", "two laws");
  refused("cosscale:s=3+cosscale:s=4", "twice");
  refused("rerope:w=3;w=4", "twice");
  refused("yarn+logn", "its own temperature");
  refused("alibi:m=0.1;left=0.2", "both sides");
  refused("cosscale", "cosscale:s=64");
  refused("", "a name is missing");
  refused("rope+", "a name is missing");
  refused("rerope:", "name=value");
  refused("rerope:w", "name=value");
  refused("rerope:w=", "name=value");
  refused("rerope:w=3;", "name=value");
}

TEST(Method, RefusesNonsenseNumbers) {
  for (const char* text : {"0x10", "nan", "inf", "-inf", "1_000", "1,5", " 3", "5.5", "-1", "0", "1e400",
                           "99999999999999999999", "three", "1e", "+3", "--3"}) {
    EXPECT_THROW(parse_method(std::string("rerope:w=") + text), Error) << text;
  }
  EXPECT_EQ(parse_method("alibi:m=.5").position->number("m"), 0.5);
  EXPECT_EQ(parse_method("alibi:m=5.").position->number("m"), 5);
  EXPECT_EQ(parse_method("alibi:m=1e-4").position->number("m"), 1e-4);
  EXPECT_EQ(parse_method("rerope:w=1e+2+logn").position->number("w"), 100);
}

TEST(Method, NumbersDoNotDependOnTheLocale) {
  const char* locale = std::setlocale(LC_NUMERIC, "de_DE.UTF-8");
  const double value = *parse_method("alibi:m=0.25").position->number("m");
  if (locale != nullptr) std::setlocale(LC_NUMERIC, "C");
  EXPECT_EQ(value, 0.25);
}

TEST(Method, ConfigurationTermsFailAsData) {
  expect_error([] { parse_position("logn"); }, ExitCode::kData, "is a law");
  expect_error([] { parse_law("rope"); }, ExitCode::kData, "is a position");
  expect_error([] { parse_law("infoscal"); }, ExitCode::kData, "did you mean 'infoscale'");
  expect_error([] { parse_position("rope+logn"); }, ExitCode::kData, "rope");
}

TEST(Method, DefaultsComeFromTheTrainingLength) {
  EXPECT_EQ(number(resolved("rerope"), "w"), 32);
  EXPECT_EQ(number(resolved("rerope"), "clamp"), 32);
  EXPECT_EQ(number(resolved("rerope:w=8"), "clamp"), 8);
  EXPECT_EQ(number(resolved("leaky-rerope"), "w"), 32);
  EXPECT_EQ(number(resolved("window"), "w"), 63);
  EXPECT_EQ(number(resolved("streaming"), "window"), 29);
  EXPECT_EQ(number(resolved("streaming"), "sinks"), 4);
  EXPECT_EQ(number(resolved("streaming"), "rows"), 0);
  EXPECT_EQ(number(resolved("lm-infinite"), "window"), 64);
  EXPECT_EQ(number(resolved("lm-infinite"), "sinks"), 10);
  EXPECT_EQ(number(resolved("lm-infinite"), "clamp"), 64);
  EXPECT_EQ(number(resolved("hwfa"), "w"), 4);
  EXPECT_EQ(number(resolved("alibi"), "left"), 0.0625);
  EXPECT_EQ(number(resolved("alibi"), "right"), 0.03125);
  EXPECT_EQ(number(resolved("alibi:m=0.5"), "right"), 0.5);
  EXPECT_EQ(number(resolved("pose"), "target"), 1024);
}

TEST(Method, TheModelsOwnFillTheGaps) {
  ModelConfig config = model();
  config.attention.position = "alibi";
  config.attention.law = "softmax_plus";
  config.attention.window = 9;
  const Method own = resolve(Method{}, config);
  EXPECT_EQ(own.position->kind, PositionKind::kAlibi);
  EXPECT_EQ(own.law->kind, LawKind::kSoftmaxPlus);
  EXPECT_EQ(own.window, 9);
  EXPECT_EQ(own.name, "alibi+softmax-plus");
  const Method law_only = resolved("logn", config);
  EXPECT_EQ(law_only.position->kind, PositionKind::kAlibi);
  EXPECT_EQ(law_only.law->kind, LawKind::kLogN);
  EXPECT_EQ(law_only.window, 9);
  const Method position_only = resolved("rope", config);
  EXPECT_EQ(position_only.law->kind, LawKind::kSoftmaxPlus);
  EXPECT_EQ(position_only.window, 0);
  EXPECT_EQ(resolved("none", config).law->kind, LawKind::kNone);
}

TEST(Method, HwfaIsTrainedWithLogNUnlessALawIsNamed) {
  ModelConfig config = model();
  config.attention.position = "hwfa";
  EXPECT_EQ(resolve(Method{}, config).law->kind, LawKind::kLogN);
  EXPECT_EQ(resolved("none", config).law->kind, LawKind::kNone);
  config.attention.law = "none";
  EXPECT_EQ(resolve(Method{}, config).law->kind, LawKind::kNone);
}

TEST(Method, ResolvingTwiceChangesNothing) {
  ModelConfig config = model();
  config.attention.window = 9;
  for (const char* entry : {"logn", "alibi:m=0.5", "rerope", "streaming", "hwfa2", "yarn", "pose"}) {
    const Method once = resolved(entry, config);
    const Method twice = resolve(once, config);
    EXPECT_EQ(once.name, twice.name);
    EXPECT_EQ(once.position->numbers, twice.position->numbers) << entry;
    EXPECT_EQ(once.position->words, twice.position->words) << entry;
    EXPECT_EQ(once.law->kind, twice.law->kind);
    EXPECT_EQ(once.window, twice.window);
  }
}

TEST(Method, RefusesWhatTheModelCannotDo) {
  const auto refused = [](const char* entry, const ModelConfig& config, const std::string& part) {
    expect_error([&] { resolved(entry, config); }, ExitCode::kUsage, part);
  };
  refused("nope", model(), "order of its tokens");
  refused("alibi:m=0", model(), "order of its tokens");
  refused("cosscale:s=64", model(), "cosine attention");
  refused("ssmax", model(), "learned factor");
  refused("calibrated", model(), "calibrated factors");
  refused("infoscale", model(1), "training length of 1");
  refused("infoscale", model(0), "infoscale:train=64");
  refused("logn", model(1), "training length of 1");
  for (const char* entry : {"pi", "ntk", "yarn", "rerope", "leaky-rerope:w=4", "window", "streaming", "lm-infinite", "hwfa"}) {
    refused(entry, model(0), "training length");
  }
  refused("streaming:sinks=64", model(), "no window");
  refused("leaky-rerope:w=63", model(), "w = 63");
  refused("hwfa", model(64, 1), "at least 2 layers");
  refused("hwfa", model(8, 24), "leave no window");
  refused("yarn:beta_slow=40", model(), "beta_fast is below");
  refused("pose:target=32", model(), "below the training length");

  ModelConfig ssmax = model();
  ssmax.attention.law = "ssmax";
  refused("logn", ssmax, "trained with ssmax");
  ModelConfig logn = model();
  logn.attention.law = "logn";
  refused("yarn", logn, "yarn+none");
  EXPECT_NO_THROW(resolved("yarn+none", logn));
  ModelConfig learned = model();
  learned.attention.kind = AttentionKind::kCosine;
  EXPECT_NO_THROW(resolved("cosscale:s=64", learned));
  learned.attention.learn_scale = true;
  refused("cosscale:s=64", learned, "learned");
}

TEST(Method, ExplicitValuesNeedNoTrainingLength) {
  for (const char* entry :
       {"pi:factor=2", "ntk:factor=2", "yarn:train=64;factor=2", "rerope:w=8", "leaky-rerope:w=8;k=2", "window:w=8",
        "streaming:window=8", "lm-infinite:window=8", "hwfa:w=2", "infoscale:train=8", "logn:train=8"}) {
    EXPECT_NO_THROW(resolved(entry, model(0))) << entry;
  }
}

std::vector<std::string> names(const char* list, const ModelConfig& config) {
  std::vector<std::string> out;
  for (const Method& method : parse_methods(list, config)) out.push_back(method.name);
  return out;
}

TEST(Method, ListsAreSeparatedByCommas) {
  EXPECT_EQ(names("rope, rerope:w=8;clamp=7+logn,yarn", model()),
            (std::vector<std::string>{"rope", "rerope:w=8;clamp=7+logn", "yarn"}));
  expect_error([] { parse_methods("rope,,pi", model()); }, ExitCode::kUsage, "empty entry");
  expect_error([] { parse_methods("", model()); }, ExitCode::kUsage, "empty entry");
  expect_error([] { parse_methods("rope,infoscale", model(1)); }, ExitCode::kUsage, "training length");
}

TEST(Method, AllIsWhatTheModelCanTake) {
  using testing::Contains;
  using testing::Not;
  const std::vector<std::string> all = names("all", model());
  for (const char* name : {"rope", "rope+infoscale", "rope+logn", "pi", "ntk", "yarn", "rerope+logn", "leaky-rerope",
                           "lm-infinite", "streaming", "window+infoscale"}) {
    EXPECT_THAT(all, Contains(name));
  }
  EXPECT_THAT(all, Not(Contains("alibi")));
  EXPECT_THAT(all, Not(Contains("ssmax")));

  EXPECT_EQ(names("all", model(0)), (std::vector<std::string>{"rope"}));
  ModelConfig hwfa = model();
  hwfa.attention.position = "hwfa";
  EXPECT_EQ(names("all", hwfa), (std::vector<std::string>{"hwfa", "hwfa+none", "hwfa+infoscale", "hwfa+logn"}));
  ModelConfig plus = model();
  plus.attention.law = "softmax_plus";
  EXPECT_THAT(names("all", plus), Contains("yarn+none"));
}

TEST(Method, NearestNameKnowsExchangedLettersAndGivesUp) {
  EXPECT_EQ(nearest_name("learning_rtae", {"seed", "learning_rate"}), "learning_rate");
  EXPECT_EQ(nearest_name("zzz", {"rope", "pi"}), "");
  EXPECT_EQ(nearest_name("ROPE", {"nope", "rope"}), "rope");
}

}  // namespace
}  // namespace gau
