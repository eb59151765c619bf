// Model files: the way back, plain files of others, and what is refused.
#include "train/model_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "framework/hdf5_file.h"
#include "tests/errors.h"
#include "tests/train/scratch.h"
#include "tests/train/tiny_model.h"

namespace gau {
namespace {

using testing::HasSubstr;

Model make_model(const ModelConfig& config, DType dtype = DType::kF32) {
  Model model(config, dtype);
  model.initialize(3);
  return model;
}

Tokenization words() {
  return {"char", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "词", std::string("\0", 1)}, SpecialNames{}};
}

/// Tensors by name, to be changed before they are written as a file of somebody else's.
using Tensors = std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>>;

Tensors tensors_of(const Model& model) {
  Tensors tensors;
  for (const Parameter& parameter : model.parameters().list()) {
    auto& [shape, values] = tensors[parameter.name];
    for (int axis = 0; axis < parameter.shape.rank(); ++axis) shape.push_back(parameter.shape[axis]);
    const Tensor segment = model.parameters().values().segment(parameter.offset, parameter.shape);
    values.assign(segment.span<float>().begin(), segment.span<float>().end());
  }
  return tensors;
}

void write_plain(const std::string& path, const Tensors& tensors, const std::map<std::string, std::int64_t>& attributes = {}) {
  h5::Writer file(path);
  for (const auto& [name, tensor] : tensors) file.write<float>("/parameters/" + name, tensor.second, tensor.first);
  for (const auto& [name, value] : attributes) file.attribute("/", name, value);
  file.publish();
}

constexpr const char* kWord = "gau_alpha.embeddings.word_embeddings.weight";
constexpr const char* kOutput = "gau_alpha.encoder.layer.1.gau.o_dense.weight";

class ModelFile : public testing::Test {
 protected:
  Scratch scratch_;
  std::string path_ = scratch_.file("model.h5");
};

TEST_F(ModelFile, ComesBackBitByBit) {
  ModelConfig config = tiny_model();
  config.dropout = 0.3;
  config.tied = false;
  config.norm_eps = 1e-9;
  config.attention.kind = AttentionKind::kCosine;
  config.attention.scale = 17.25;
  config.attention.learn_scale = true;
  config.attention.law = "infoscale";
  config.attention.window = 5;
  config.attention.init_gamma = InitGamma::kSign;
  config.attention.calibration = {{64, {1.0, 1.1}}, {128, {1.2, 1.3}}};
  const Model model = make_model(config);
  save_model(path_, model, words());
  const LoadedModel loaded = load_model(path_);
  const ModelConfig& read = loaded.model.config();
  EXPECT_EQ(read.layers, 2);
  EXPECT_EQ(read.dropout, 0.3);
  EXPECT_FALSE(read.tied);
  EXPECT_EQ(read.norm_eps, 1e-9);
  EXPECT_EQ(read.attention.kind, AttentionKind::kCosine);
  EXPECT_EQ(read.attention.scale, 17.25);
  EXPECT_TRUE(read.attention.learn_scale);
  EXPECT_EQ(read.attention.law, "infoscale");
  EXPECT_EQ(read.attention.position, config.attention.position);
  EXPECT_EQ(read.attention.window, 5);
  EXPECT_EQ(read.attention.init_gamma, InitGamma::kSign);
  EXPECT_EQ(read.attention.train_length, 32);
  ASSERT_EQ(read.attention.calibration.size(), 2u);
  EXPECT_EQ(read.attention.calibration[1].length, 128);
  EXPECT_EQ(read.attention.calibration[1].factors, (std::vector<double>{1.2, 1.3}));
  ASSERT_EQ(loaded.model.parameters().size(), model.parameters().size());
  for (std::int64_t i = 0; i < model.parameters().size(); ++i)
    ASSERT_EQ(loaded.model.parameters().values().at(i), model.parameters().values().at(i)) << i;
  EXPECT_EQ(loaded.text.vocabulary, words().vocabulary);
  EXPECT_EQ(loaded.text.make(path_)->encode("ab[MASK]", true), (std::vector<std::int32_t>{5, 6, 4}));
}

TEST_F(ModelFile, DoubleKeepsItsBits) {
  const Model model = make_model(tiny_model(), DType::kF64);
  save_model(path_, model, {});
  const LoadedModel loaded = load_model(path_, DType::kF64);
  for (std::int64_t i = 0; i < model.parameters().size(); ++i)
    ASSERT_EQ(loaded.model.parameters().values().at(i), model.parameters().values().at(i)) << i;
}

TEST_F(ModelFile, TwoSavesAreEqualBytes) {
  const Model model = make_model(tiny_model());
  save_model(path_, model, words());
  save_model(scratch_.file("again.h5"), model, words());
  EXPECT_EQ(read_bytes(path_), read_bytes(scratch_.file("again.h5")));
}

TEST_F(ModelFile, APlainFileNeedsNoAttributes) {
  const Model model = make_model(tiny_model());
  write_plain(path_, tensors_of(model));
  const LoadedModel loaded = load_model(path_);
  EXPECT_EQ(loaded.model.config().key_size, 6);
  EXPECT_EQ(loaded.model.config().intermediate, 20);
  EXPECT_EQ(loaded.model.config().attention.train_length, 0);
  EXPECT_EQ(loaded.model.parameters().values().at(17), model.parameters().values().at(17));
  EXPECT_THAT(error_of([&] { loaded.text.make(path_); }).what(), HasSubstr("no vocabulary"));
}

TEST_F(ModelFile, MissingExtraAndMisshapenTensorsAreNamed) {
  const Tensors good = tensors_of(make_model(tiny_model()));
  Tensors missing = good, extra = good, misshapen = good;
  missing.erase(kOutput);
  extra["gau_alpha.extra"] = {{2}, {1, 2}};
  misshapen[kOutput].first = {20, 12};
  for (const auto& [tensors, name] :
       {std::pair{missing, kOutput}, std::pair{extra, "gau_alpha.extra"}, std::pair{misshapen, kOutput}}) {
    write_plain(path_, tensors);
    const Error error = error_of([&] { load_model(path_); });
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), HasSubstr(name));
    EXPECT_THAT(error.what(), HasSubstr(path_));
  }
}

TEST_F(ModelFile, ValuesMustBeFinite) {
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    Tensors tensors = tensors_of(make_model(tiny_model()));
    tensors[kWord].second[7] = bad;
    write_plain(path_, tensors);
    const Error error = error_of([&] { load_model(path_); });
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), HasSubstr("element 7 is not finite"));
  }
}

TEST_F(ModelFile, AttributesThatContradictTheTensorsAreRefused) {
  write_plain(path_, tensors_of(make_model(tiny_model())), {{"layers", 3}});
  EXPECT_THAT(error_of([&] { load_model(path_); }).what(), HasSubstr("layers = 3, but the tensors have 2"));
}

TEST_F(ModelFile, ADamagedFileIsRefused) {
  save_model(path_, make_model(tiny_model()), words());
  damage(path_, read_bytes(path_).size() / 2);
  EXPECT_EQ(error_of([&] { load_model(path_); }).code(), ExitCode::kData);
}

TEST_F(ModelFile, OtherFilesAreNoModels) {
  {
    h5::Writer file(path_);
    file.write<float>("/something", std::vector<float>{1}, {1});
    file.publish();
  }
  EXPECT_THAT(error_of([&] { load_model(path_); }).what(), HasSubstr("no model file"));
  EXPECT_EQ(error_of([&] { load_model(scratch_.file("nothing.h5")); }).code(), ExitCode::kIo);
}

TEST_F(ModelFile, ModelStandsForFileCheckpointOrRun) {
  namespace fs = std::filesystem;
  const fs::path run = scratch_.file("run"), checkpoints = run / "checkpoints";
  fs::create_directories(checkpoints / "step-2");
  fs::create_directories(checkpoints / "step-5");
  EXPECT_EQ(error_of([&] { resolve_model_path(run.string()); }).code(), ExitCode::kData);
  EXPECT_EQ(error_of([&] { resolve_model_path(scratch_.file("nothing")); }).code(), ExitCode::kIo);
  save_model((checkpoints / "step-2" / "model.h5").string(), make_model(tiny_model()), {});
  save_model((checkpoints / "step-5" / "model.h5").string(), make_model(tiny_model()), {});
  fs::create_symlink("step-5", checkpoints / "latest");
  EXPECT_EQ(fs::canonical(resolve_model_path(run.string())), fs::canonical(checkpoints / "step-5" / "model.h5"));
  fs::create_symlink("step-2", checkpoints / "best");
  EXPECT_EQ(fs::canonical(resolve_model_path(run.string())), fs::canonical(checkpoints / "step-2" / "model.h5"));
  const std::string directory = (checkpoints / "step-5").string();
  EXPECT_EQ(resolve_model_path(directory), directory + "/model.h5");
  EXPECT_EQ(resolve_model_path(directory + "/model.h5"), directory + "/model.h5");
}

}  // namespace
}  // namespace gau
