// Damaged files of every kind: each is refused by an Error of one line, or holds what it is then taken to hold. Nothing
// crashes, hangs or loads something else in silence. A few hundred mutants of each kind here, thousands in the slow suite.
//
// Files that carry a digest (model, optimizer, corpus) must be refused whatever the damage. A manifest may only be taken when
// it says what it said. The Hugging Face layout has no digest: a mutant that is taken must give exactly what its own bytes,
// read independently, say.
#include "tests/mutants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/corpus.h"
#include "framework/error.h"
#include "framework/log.h"
#include "tests/train/small_corpus.h"
#include "train/checkpoint.h"
#include "train/exchange.h"
#include "train/exchange_config.h"
#include "train/float16.h"
#include "train/model_io.h"
#include "train/training_run.h"
#include "train/verify.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kFew = 300;
constexpr std::uint32_t kMany = 3000;

class Mutants : public testing::Test {
 protected:
  void SetUp() override {
    log::set_quiet(true);
    testing::internal::CaptureStderr();  // mutants of a vocabulary bring warnings
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    log::set_quiet(false);
  }

  /// Replaces `path` by each of its mutants in turn and calls take(), which may throw Error; `accepted` judges what was taken
  /// without one. The file is then as it was. Returns how many were refused.
  std::uint32_t damage(const std::string& path, std::uint64_t kind, std::uint32_t count, const std::function<void()>& take,
                       const std::function<void(const std::string& bytes)>& accepted) {
    const std::string whole = read_bytes(path);
    std::uint32_t refused = 0;
    for (std::uint32_t index = 0; index < count && !HasFailure(); ++index) {
      SCOPED_TRACE(testing::Message() << path << ", mutant " << index);
      const std::string bytes = Mutator(kind, index)(whole);
      write(path, bytes);
      try {
        take();
      } catch (const Error& error) {
        ++refused;
        EXPECT_TRUE(error.code() == ExitCode::kData || error.code() == ExitCode::kIo) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        continue;
      }
      accepted(bytes);
    }
    write(path, whole);
    return refused;
  }
  void expect_all_refused(const std::string& path, std::uint64_t kind, std::uint32_t count, const std::function<void()>& take) {
    EXPECT_EQ(damage(path, kind, count, take, [](const std::string&) { ADD_FAILURE() << "was taken"; }), count);
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  void corpus(std::uint32_t count);
  void checkpoint_model(std::uint32_t count);
  void optimizer(std::uint32_t count);
  void manifest(std::uint32_t count);
  void tensors(std::uint32_t count);
  void configuration(std::uint32_t count);
  void vocabulary(std::uint32_t count);

  /// A checkpoint of a run of a few steps.
  std::string make_checkpoint() {
    TrainRequest request;
    request.config =
        small_config(small_corpus(scratch_), scratch_.file("run"),
                     {"optim.steps=2", "train.save_every=2", "model.hidden=8", "model.intermediate=8", "model.key_size=4"});
    train(request);
    return fs::canonical(scratch_.file("run") + "/checkpoints/latest").string();
  }
  /// A small model as an exported directory.
  std::string make_export(safetensors::Type type) {
    ModelConfig config;
    config.layers = 1;
    config.hidden = 4;
    config.intermediate = 6;
    config.key_size = 2;
    config.vocab_size = 9;
    config.attention.train_length = 32;
    LoadedModel loaded{Model(config), {"char", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\n", "词", "é"}, {}}};
    loaded.model.initialize(3);
    const std::string directory = scratch_.file(safetensors::name_of(type));
    export_model(directory, loaded, type, false);
    return directory;
  }

  Scratch scratch_;
};
class MutantsSlow : public Mutants {};

void Mutants::corpus(std::uint32_t count) {
  const std::string path = small_corpus(scratch_);
  expect_all_refused(path, 1, count, [&] {
    for (const Finding& finding : verify(path)) check(finding.ok(), finding.code, "{}", finding.text);
  });
}

void Mutants::checkpoint_model(std::uint32_t count) {
  const std::string directory = make_checkpoint(), path = directory + "/model.h5";
  expect_all_refused(path, 2, count, [&] { load_model(path); });
  expect_all_refused(path, 3, count / 10, [&] { verify_checkpoint(directory); });
}

void Mutants::optimizer(std::uint32_t count) {
  const std::string directory = make_checkpoint(), path = directory + "/optimizer-0.h5";
  expect_all_refused(path, 4, count, [&] {
    for (const Finding& finding : verify(path)) check(finding.ok(), finding.code, "{}", finding.text);
  });
  expect_all_refused(path, 5, count / 10, [&] { verify_checkpoint(directory); });
}

void Mutants::manifest(std::uint32_t count) {
  const std::string directory = make_checkpoint();
  const Manifest good = verify_checkpoint(directory);
  Manifest read;
  const std::uint32_t refused = damage(
      directory + "/manifest.json", 6, count, [&] { read = verify_checkpoint(directory); },
      [&](const std::string&) {
        EXPECT_EQ(read.digest, good.digest);
        EXPECT_EQ(read.updates, good.updates);
        EXPECT_EQ(read.parameters, good.parameters);
        EXPECT_EQ(read.parts, good.parts);
        EXPECT_EQ(read.dtype, good.dtype);
        EXPECT_EQ(read.config, good.config);
        EXPECT_EQ(read.state.step, good.state.step);
        EXPECT_EQ(read.state.cursor, good.state.cursor);
        EXPECT_EQ(read.state.skipped, good.state.skipped);
        EXPECT_EQ(read.state.best_step, good.state.best_step);
        EXPECT_EQ(read.state.best_loss, good.state.best_loss);
      });
  EXPECT_GT(refused, count * 9 / 10);
}

/// The elements of a tensor as a file's own header describes them, read without the library.
std::vector<float> independent(const std::string& bytes, const std::string& name) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json tensor = Json::parse(bytes.substr(8, header)).at(name);
  const std::string dtype = tensor.at("dtype");
  const char* data = bytes.data() + 8 + header + tensor.at("data_offsets")[0].get<std::uint64_t>();
  std::size_t count = 1;
  for (const Json& dimension : tensor.at("shape")) count *= dimension.get<std::size_t>();
  std::vector<float> values(count);
  if (dtype == "F32") {
    std::memcpy(values.data(), data, count * sizeof(float));
    return values;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, data + 2 * i, sizeof half);
    const std::uint32_t wide = static_cast<std::uint32_t>(half) << 16;
    if (dtype == "BF16")
      std::memcpy(&values[i], &wide, sizeof wide);
    else
      values[i] = from_float16(half);
  }
  return values;
}

void Mutants::tensors(std::uint32_t count) {
  std::uint64_t kind = 7;
  for (const safetensors::Type type : {safetensors::Type::kF32, safetensors::Type::kBF16, safetensors::Type::kF16}) {
    const std::string directory = make_export(type);
    std::optional<ExchangeImport> read;
    damage(
        directory + "/model.safetensors", kind++, count / 3, [&] { read.emplace(import_model(directory)); },
        [&](const std::string& bytes) {
          for (const Parameter& parameter : read->loaded.model.parameters().list()) {
            const std::vector<float> wanted = independent(bytes, parameter.name);
            const Tensor values = read->loaded.model.parameters().values().segment(parameter.offset, parameter.shape);
            ASSERT_EQ(static_cast<std::size_t>(values.size()), wanted.size()) << parameter.name;
            EXPECT_EQ(std::memcmp(values.raw(), wanted.data(), values.bytes()), 0) << parameter.name;
            for (const float value : wanted) ASSERT_TRUE(std::isfinite(value)) << parameter.name;
          }
        });
  }
}

/// Every key of `stated` that `understood` has too must have its value; others must have been named.
void expect_understood(const Json& stated, const Json& understood, const std::vector<std::string>& notes) {
  for (const auto& [key, value] : stated.items()) {
    if (value.is_null() || key == "architectures" || key == "torch_dtype" || key == "max_position_embeddings") continue;
    if (!understood.contains(key)) {
      EXPECT_THAT(notes, testing::Contains(testing::HasSubstr("ignores the key"))) << key;
    } else if (key == "gau") {
      for (const auto& [name, ours] : value.items()) {
        if (ours.is_null() || name == "rows") continue;
        EXPECT_EQ(understood["gau"].value(name, Json()), ours) << name;
      }
    } else if (key == "normalization" && !stated.contains("gau")) {
      continue;
    } else {
      EXPECT_EQ(understood[key], value) << key;
    }
  }
  if (stated.contains("gau")) return;
  EXPECT_THAT(notes, testing::Contains(testing::HasSubstr("no key \"gau\"")));
}

void Mutants::configuration(std::uint32_t count) {
  const std::string directory = make_export(safetensors::Type::kF32);
  std::optional<ExchangeImport> read;
  const std::uint32_t refused = damage(
      directory + "/config.json", 10, count, [&] { read.emplace(import_model(directory)); },
      [&](const std::string& bytes) {
        const LoadedModel& loaded = read->loaded;
        const Json understood = Json::parse(exchange_config_text(loaded.model.config(), loaded.text, safetensors::Type::kF32));
        expect_understood(Json::parse(bytes), understood, read->notes);
      });
  EXPECT_GT(refused, count / 2);
}

void Mutants::vocabulary(std::uint32_t count) {
  const std::string directory = make_export(safetensors::Type::kF32);
  std::optional<ExchangeImport> read;
  const std::uint32_t refused = damage(
      directory + "/vocab.txt", 11, count, [&] { read.emplace(import_model(directory)); },
      [&](const std::string& bytes) {
        std::istringstream text(bytes);
        std::vector<std::string> lines;
        for (std::string line; std::getline(text, line);)
          lines.push_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
        ASSERT_EQ(lines.size(), 9u);
        EXPECT_EQ(lines[6], "[unused6]");
        lines[6] = "\n";  // config.json has it
        EXPECT_EQ(read->loaded.text.vocabulary, lines);
      });
  EXPECT_GT(refused, count / 4);
}

TEST_F(Mutants, Corpus) { corpus(kFew); }
TEST_F(Mutants, CheckpointModel) { checkpoint_model(kFew); }
TEST_F(Mutants, Optimizer) { optimizer(kFew); }
TEST_F(Mutants, Manifest) { manifest(kFew); }
TEST_F(Mutants, Safetensors) { tensors(kFew); }
TEST_F(Mutants, ExchangeConfig) { configuration(kFew); }
TEST_F(Mutants, ExchangeVocabulary) { vocabulary(kFew); }

TEST_F(MutantsSlow, Corpus) { corpus(kMany); }
TEST_F(MutantsSlow, CheckpointModel) { checkpoint_model(kMany); }
TEST_F(MutantsSlow, Optimizer) { optimizer(kMany); }
TEST_F(MutantsSlow, Manifest) { manifest(kMany); }
TEST_F(MutantsSlow, Safetensors) { tensors(3 * kMany); }
TEST_F(MutantsSlow, ExchangeConfig) { configuration(kMany); }
TEST_F(MutantsSlow, ExchangeVocabulary) { vocabulary(kMany); }

}  // namespace
}  // namespace gau
