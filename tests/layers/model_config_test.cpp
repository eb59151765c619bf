// Sizes, their checks and the number of parameters.
#include "layers/model_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "framework/error.h"

namespace gau {
namespace {

ModelConfig base_config() {
  ModelConfig config;
  config.layers = 24;
  config.hidden = 768;
  config.intermediate = 1536;
  config.key_size = 128;
  config.vocab_size = 12000;
  return config;
}

TEST(ModelConfig, CountsTheParametersOfGauAlpha) {
  ModelConfig config = base_config();
  EXPECT_EQ(config.parameter_count(), 96'517'632);  // 96.5 million
  config.layers = 6;
  EXPECT_EQ(config.parameter_count(), 31'042'560);  // 31.0 million
  config.attention.kind = AttentionKind::kCosine;
  config.attention.learn_scale = true;
  EXPECT_EQ(config.parameter_count(), 31'042'566);
  config.attention.law = "ssmax";
  EXPECT_EQ(config.parameter_count(), 31'042'572);
  config.tied = false;
  EXPECT_EQ(config.parameter_count(), 31'042'572 + 12000 * 768);
}

TEST(ModelConfig, AcceptsWhatMakesAModel) {
  ModelConfig config = base_config();
  for (const char* position :
       {"rope", "alibi", "hwfa", "hwfa2:w=3", "window:w=31", "pose", "random:target=4096", "pi:factor=4"}) {
    for (const std::int64_t train : {0, 512}) {
      config.attention.position = position;
      config.attention.train_length = train;
      EXPECT_NO_THROW(config.validate()) << position << " " << train;
    }
  }
  config.attention.law = "softmax_plus";
  EXPECT_NO_THROW(config.validate());
}

TEST(ModelConfig, NamesTheKeyThatMakesNoModel) {
  const auto refused = [](const std::string& key, const std::function<void(ModelConfig&)>& damage) {
    ModelConfig config = base_config();
    damage(config);
    try {
      config.validate();
      ADD_FAILURE() << key << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refused("[model] layers = 0", [](ModelConfig& c) { c.layers = 0; });
  refused("[model] hidden", [](ModelConfig& c) { c.hidden = -1; });
  refused("[model] intermediate", [](ModelConfig& c) { c.intermediate = std::int64_t{1} << 40; });
  refused("[model] key_size = 63 must be even", [](ModelConfig& c) { c.key_size = 63; });
  refused("[model] vocab_size", [](ModelConfig& c) { c.vocab_size = 0; });
  refused("[model] pad_id", [](ModelConfig& c) { c.pad_id = 12000; });
  refused("[model] dropout", [](ModelConfig& c) { c.dropout = 1; });
  refused("[model] norm_eps", [](ModelConfig& c) { c.norm_eps = 0; });
  refused("[attention] scale", [](ModelConfig& c) { c.attention.scale = 0; });
  refused("[attention] learn_scale", [](ModelConfig& c) { c.attention.learn_scale = true; });
  refused("[attention] window", [](ModelConfig& c) { c.attention.window = -1; });
  refused("[attention] law", [](ModelConfig& c) { c.attention.law = "infoscal"; });
  refused("did you mean 'rerope'", [](ModelConfig& c) { c.attention.position = "reropo"; });
  refused("order of its tokens", [](ModelConfig& c) { c.attention.position = "nope"; });
  refused("yarn", [](ModelConfig& c) {
    c.attention.position = "yarn";
    c.attention.law = "logn";
  });
  refused("calibrated", [](ModelConfig& c) { c.attention.calibration = {{128, {1.0}}}; });
}

TEST(ModelConfig, NamesOfKindsGoBothWays) {
  for (const char* name : {"dot", "cosine", "keynorm"}) EXPECT_STREQ(name_of(parse_attention_kind(name)), name);
  for (const char* name : {"default", "ones", "sign", "normal"}) EXPECT_STREQ(name_of(parse_init_gamma(name)), name);
  EXPECT_THROW(parse_attention_kind("dots"), Error);
  EXPECT_THROW(parse_init_gamma(""), Error);
}

}  // namespace
}  // namespace gau
