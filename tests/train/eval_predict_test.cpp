// predict and fill: files in and out, independence of batching, padding anywhere, and refusals that name the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "train/fill.h"
#include "train/predict.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Model tiny_model(DType dtype, std::int64_t vocabulary = 20) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 8;
  config.intermediate = 16;
  config.key_size = 4;
  config.vocab_size = vocabulary;
  config.attention.train_length = 8;
  Model model(config, dtype);
  model.initialize(7);
  return model;
}

class PredictFiles : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  using Ids = std::vector<std::int32_t>;
  std::string write_inputs(const std::string& group, const Ids& ids, const Ids& mask, std::int64_t length) {
    const std::string file = path("in.h5");
    h5::Writer writer(file);
    const auto rows = static_cast<std::int64_t>(ids.size()) / length;
    writer.write<std::int32_t>(group + "input_ids", ids, {rows, length});
    if (!mask.empty()) {
      const auto mask_length = static_cast<std::int64_t>(mask.size()) / rows;
      writer.write<std::int32_t>(group + "attention_mask", mask, {rows, mask_length});
    }
    writer.publish();
    return file;
  }

  std::vector<double> logits(const PredictInputs& inputs, const PredictOptions& options = {}) {
    predict(tiny_model(DType::kF64), Method{}, inputs, options, path("out.h5"));
    return h5::Reader(path("out.h5")).read<double>("/logits");
  }

  fs::path directory_ = fs::path(::testing::TempDir()) / ("gau_predict_" + std::to_string(getpid()));
};

TEST_F(PredictFiles, InputsAreFoundInTheRootAndUnderInputs) {
  for (const char* group : {"/", "/inputs/"}) {
    const PredictInputs inputs = read_predict_inputs(write_inputs(group, {1, 2, 3, 4, 5, 6}, {1, 1, 1, 1, 0, 1}, 3));
    EXPECT_EQ(inputs.rows, 2);
    EXPECT_EQ(inputs.length, 3);
    EXPECT_EQ(inputs.ids[3], 4);
    EXPECT_EQ(inputs.mask[4], 0);
    EXPECT_TRUE(inputs.types.empty());
  }
}

std::string message_of(const std::function<void()>& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing thrown";
}

TEST_F(PredictFiles, RefusalsNameThePlace) {
  const auto read = [&](const Ids& ids, const Ids& mask) {
    return message_of([&] { read_predict_inputs(write_inputs("/", ids, mask, 3)); }, ExitCode::kData);
  };
  EXPECT_THAT(read({1, 2, 3, 4, 5, 6}, {1, 1, 1, 1}), HasSubstr("attention_mask is 2 x 2, but input_ids is 2 x 3"));
  EXPECT_THAT(read({1, 2, 3}, {1, 2, 1}), HasSubstr("value 2 at row 0, column 1"));
  const PredictInputs outside{2, 3, {1, 2, 3, 4, 20, 6}, {}, {}};
  const ModelConfig config = tiny_model(DType::kF32).config();
  EXPECT_THAT(message_of([&] { check_predict_inputs(outside, config, "x.h5"); }, ExitCode::kData),
              HasSubstr("x.h5: input_ids: value 20 at row 1, column 1 is not in [0, 20)"));
  const PredictInputs types{1, 2, {1, 2}, {}, {0, 2}};
  EXPECT_THAT(message_of([&] { check_predict_inputs(types, config, "x.h5"); }, ExitCode::kData), HasSubstr("type_ids"));
}

TEST_F(PredictFiles, OutputsHaveTheirShapesAndDoNotDependOnTheBatch) {
  PredictInputs inputs{5, 6, {}, {}, {}};
  for (std::int32_t i = 0; i < 30; ++i) inputs.ids.push_back(5 + i % 13);
  PredictOptions options;
  options.hidden = options.attention = true;
  const std::vector<double> together = logits(inputs, options);
  const h5::Reader out(path("out.h5"));
  EXPECT_EQ(out.info("/logits").shape, (std::vector<std::int64_t>{5, 6, 20}));
  EXPECT_EQ(out.info("/hidden").shape, (std::vector<std::int64_t>{3, 5, 6, 8}));
  EXPECT_EQ(out.info("/attention").shape, (std::vector<std::int64_t>{2, 5, 6, 6}));
  EXPECT_EQ(out.info("/logits").element_bytes, 8u);
  const std::vector<double> weights = out.read<double>("/attention");
  for (std::size_t row = 0; row < weights.size() / 6; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < 6; ++j) sum += weights[row * 6 + j];
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  const std::vector<double> hidden = out.read<double>("/hidden");
  options.batch_tokens = 7;
  const std::vector<double> one_by_one = logits(inputs, options);
  const std::vector<double> hidden_again = h5::Reader(path("out.h5")).read<double>("/hidden");
  const std::vector<double> weights_again = h5::Reader(path("out.h5")).read<double>("/attention");
  for (std::size_t i = 0; i < together.size(); ++i) ASSERT_NEAR(together[i], one_by_one[i], 1e-12);
  for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], weights_again[i], 1e-12);
  for (std::size_t i = 0; i < hidden.size(); ++i) ASSERT_NEAR(hidden[i], hidden_again[i], 1e-12);
  // The last state times the embedding gives the logits.
  const Model model = tiny_model(DType::kF64);
  const Tensor word = model.parameters().find("gau_alpha.embeddings.word_embeddings.weight").variable.value();
  double product = 0;
  for (std::size_t c = 0; c < 8; ++c) product += hidden[2 * 5 * 6 * 8 + c] * word.at(static_cast<std::int64_t>(3 * 8 + c));
  EXPECT_NEAR(product, together[3], 1e-12);
}

TEST_F(PredictFiles, WhatIsMaskedInTheMiddleIsNotSeen) {
  PredictInputs inputs{1, 5, {6, 7, 8, 9, 10}, {1, 1, 0, 1, 1}, {}};
  const std::vector<double> before = logits(inputs);
  inputs.ids[2] = 13;
  const std::vector<double> after = logits(inputs);
  for (std::size_t position : {0, 1, 3, 4}) {
    for (std::size_t v = 0; v < 20; ++v) EXPECT_EQ(before[position * 20 + v], after[position * 20 + v]);
  }
  inputs.mask.clear();
  EXPECT_NE(before[0], logits(inputs)[0]);
}

CharTokenizer letters() { return CharTokenizer(Vocabulary::made({"a", "b", "c", "d", "e", " "}, SpecialNames{})); }

TEST_F(PredictFiles, TextIsARowALine) {
  const CharTokenizer tokenizer = letters();
  std::ofstream(path("t.txt")) << "abc\n\na[MASK]\r\n";
  const PredictInputs inputs = predict_inputs_of_text(path("t.txt"), tokenizer);
  EXPECT_EQ(inputs.rows, 3);
  EXPECT_EQ(inputs.length, 3);
  EXPECT_EQ(inputs.mask, (Ids{1, 1, 1, 0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(inputs.ids[7], tokenizer.vocabulary().special().mask);
  std::ofstream(path("empty.txt")) << "\n";
  EXPECT_THAT(message_of([&] { predict_inputs_of_text(path("empty.txt"), tokenizer); }, ExitCode::kData), HasSubstr("no text"));
  EXPECT_THAT(message_of([&] { predict_inputs_of_text(path("none.txt"), tokenizer); }, ExitCode::kIo), HasSubstr("none.txt"));
}

TEST(FillMasks, RanksTheWholeVocabularyAndPutsTheBestIn) {
  const CharTokenizer tokenizer = letters();
  const Model model = tiny_model(DType::kF32, tokenizer.vocabulary().size());
  const FilledText filled = fill_masks(model, tokenizer, Method{}, "ab[MASK] d[MASK]", 100);
  ASSERT_EQ(filled.masks.size(), 2u);
  EXPECT_EQ(filled.masks[0].position, 2);
  EXPECT_EQ(filled.masks[1].position, 5);
  std::string expected = "ab" + tokenizer.vocabulary().token(filled.masks[0].candidates[0].id) + " d" +
                         tokenizer.vocabulary().token(filled.masks[1].candidates[0].id);
  EXPECT_EQ(filled.best, expected);
  for (const FilledMask& mask : filled.masks) {
    ASSERT_EQ(static_cast<std::int64_t>(mask.candidates.size()), tokenizer.vocabulary().size());
    double sum = 0;
    for (std::size_t i = 0; i < mask.candidates.size(); ++i) {
      sum += mask.candidates[i].probability;
      if (i > 0) {
        EXPECT_LE(mask.candidates[i].probability, mask.candidates[i - 1].probability);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  EXPECT_EQ(fill_masks(model, tokenizer, Method{}, "[MASK]", 2).masks[0].candidates.size(), 2u);
  EXPECT_THAT(message_of([&] { fill_masks(model, tokenizer, Method{}, "ab", 2); }, ExitCode::kUsage), HasSubstr("[MASK]"));
}

}  // namespace
}  // namespace gau
