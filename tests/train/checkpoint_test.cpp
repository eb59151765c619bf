// Checkpoints: whole or not at all, equal bytes for equal states, the newest good one found, old ones removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "tests/train/scratch.h"
#include "train/background_save.h"
#include "train/checkpoint_store.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Config tiny_config() {
  Config config = parse_config("", "c",
                               {"model.layers=2", "model.hidden=12", "model.intermediate=20", "model.key_size=6",
                                "model.vocab_size=9", "train.shards=4"});
  return config;
}

/// A model with an optimizer that has made `updates` updates.
struct SmallRun {
  explicit SmallRun(int updates, const Config& with = tiny_config())
      : config(with), model(config.model, config.train.dtype), optimizer(config.optim, model.parameters()) {
    model.initialize(1);
    for (int i = 0; i < updates; ++i) update();
  }
  void update() {
    for (std::int64_t i = 0; i < model.parameters().size(); ++i) {
      const double gradient = 0.01 * static_cast<double>(i % 17 - 8);
      if (model.dtype() == DType::kF64)
        model.parameters().gradients().data<double>()[i] = gradient;
      else
        model.parameters().gradients().data<float>()[i] = static_cast<float>(gradient);
    }
    optimizer.apply(1e-3, 0.5);
    ++state.step;
    state.cursor += 64;
  }
  RunFacts facts() const { return {model, config, text, 0xc0}; }
  Snapshot now() const { return Snapshot::of(model, optimizer, state); }
  std::uint64_t save(const CheckpointStore& store, bool best = false) const {
    BackgroundSave save(store, facts());
    save.begin_without_copy(now(), best);
    return save.publish();
  }
  std::uint64_t digest() const { return now().digest(config.train.shards); }

  Config config;
  Model model;
  Optimizer optimizer;
  TrainState state;
  Tokenization text;
};

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_equal_directories(const std::string& a, const std::string& b) {
  ASSERT_EQ(names_in(a), names_in(b));
  for (const auto& name : names_in(a)) EXPECT_EQ(read_bytes(a + "/" + name), read_bytes(b + "/" + name)) << name;
}

class Checkpoint : public testing::Test {
 protected:
  std::string checkpoints() const { return scratch_.file("run/checkpoints"); }
  Scratch scratch_;
  CheckpointStore store_{scratch_.file("run"), 2};
};

TEST_F(Checkpoint, RestoresTheSameRun) {
  SmallRun straight(5), saved(3);
  saved.state.best_loss = 2.0 / 3.0;
  saved.state.best_step = 2;
  saved.state.skipped = 1;
  const std::uint64_t digest = saved.save(store_);
  SmallRun resumed(0);
  load_checkpoint(*store_.newest(), resumed.model, resumed.optimizer, resumed.state);
  EXPECT_EQ(resumed.state.step, 3);
  EXPECT_EQ(resumed.state.cursor, 192u);
  EXPECT_EQ(resumed.state.best_loss, 2.0 / 3.0);
  EXPECT_EQ(resumed.state.best_step, 2);
  EXPECT_EQ(resumed.state.skipped, 1);
  EXPECT_EQ(resumed.digest(), digest);
  resumed.update();
  resumed.update();
  for (std::int64_t i = 0; i < straight.model.parameters().size(); ++i)
    ASSERT_EQ(resumed.model.parameters().values().at(i), straight.model.parameters().values().at(i)) << i;
}

TEST_F(Checkpoint, RestoresTrainingInDouble) {
  Config config = tiny_config();
  config.train.dtype = DType::kF64;
  const SmallRun saved(2, config);
  const std::uint64_t digest = saved.save(store_);
  SmallRun resumed(0, config);
  load_checkpoint(*store_.newest(), resumed.model, resumed.optimizer, resumed.state);
  EXPECT_EQ(resumed.digest(), digest);
}

TEST_F(Checkpoint, EqualStatesGiveEqualBytesWhereverTheyAre) {
  const SmallRun run(3);
  SmallRun elsewhere(3);
  elsewhere.config.data.corpus = "/another/place.h5";
  elsewhere.config.train.output = "/another/run";
  elsewhere.config.train.threads = 9;
  const Scratch other;
  const CheckpointStore store(other.path(), 2);
  EXPECT_EQ(run.save(store_), elsewhere.save(store));
  expect_equal_directories(store_.directory_of(3), store.directory_of(3));
}

TEST_F(Checkpoint, TheDigestFollowsTheStateAlone) {
  const SmallRun run(3), other(3);
  SmallRun later(4), moved(3);
  moved.state.cursor += 1;
  const auto digest = [](const SmallRun& r) { return r.digest(); };
  EXPECT_EQ(digest(run), digest(other));
  EXPECT_NE(digest(run), digest(later));
  EXPECT_NE(digest(run), digest(moved));
}

TEST_F(Checkpoint, HoldsOneOptimizerFileAShardAndNoPath) {
  SmallRun(1).save(store_);
  EXPECT_THAT(names_in(store_.directory_of(1)),
              ElementsAre("manifest.json", "model.h5", "optimizer-0.h5", "optimizer-1.h5", "optimizer-2.h5", "optimizer-3.h5"));
  EXPECT_THAT(read_bytes(store_.directory_of(1) + "/manifest.json"), testing::Not(HasSubstr(scratch_.path())));
}

TEST_F(Checkpoint, LinksFollow) {
  SmallRun run(1);
  run.save(store_, true);
  run.update();
  run.save(store_, false);
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/latest"), "step-2");
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/best"), "step-1");
}

TEST_F(Checkpoint, PruningKeepsTheNewestTheBestAndForeignFiles) {
  fs::create_directories(checkpoints() + "/step-03");
  fs::create_directories(checkpoints() + "/step-mine");
  SmallRun run(0);
  for (int step = 1; step <= 11; ++step) {
    run.update();
    run.save(store_, step == 2);
  }
  EXPECT_THAT(store_.steps(), ElementsAre(2, 10, 11));
  EXPECT_TRUE(fs::exists(checkpoints() + "/step-03"));
  EXPECT_TRUE(fs::exists(checkpoints() + "/step-mine"));
}

TEST_F(Checkpoint, PruningKeepsTheBestByTheirValidationLoss) {
  const CheckpointStore store(scratch_.file("run"), 1, 2);
  SmallRun run(0);
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const double loss : {3.0, 1.5, none, 2.0, 1.0, 1.5, none, none, none, 4.0, none}) {
    run.update();
    run.state.validation_loss = loss;
    if (loss < run.state.best_loss) {
      run.state.best_loss = loss;
      run.state.best_step = run.state.step;
    }
    run.save(store, run.state.best_step == run.state.step);
  }
  // 1.5 was seen twice; the earlier counts.
  EXPECT_THAT(store.steps(), ElementsAre(2, 5, 11));
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/best"), "step-5");
  EXPECT_THAT(store.best_losses(run.state), ElementsAre(1.0, 1.5));
  fs::remove_all(store.directory_of(5));
  EXPECT_THAT(store.best_losses(run.state), ElementsAre(1.0, 1.5));
}

TEST_F(Checkpoint, TheLinksAreMendedBeforeARunGoesOn) {
  SmallRun run(1);
  run.save(store_, true);
  run.update();
  run.state.best_step = 2;
  // As a kill between the rename and the links leaves it.
  run.save(store_, false);
  fs::remove(checkpoints() + "/latest");
  fs::create_symlink("step-1", checkpoints() + "/latest");
  store_.relink(run.state);
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/latest"), "step-2");
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/best"), "step-2");
}

TEST_F(Checkpoint, ABackgroundSaveHoldsTheStateOfItsBeginning) {
  SmallRun run(3);
  const std::uint64_t digest = run.digest();
  BackgroundSave save(store_, run.facts());
  EXPECT_FALSE(save.done());
  save.begin(run.now(), false);
  EXPECT_EQ(save.step(), 3);
  for (int i = 0; i < 20; ++i) run.update();
  EXPECT_TRUE(store_.steps().empty()) << "only publish() makes a checkpoint";
  EXPECT_EQ(save.publish(), digest);
  EXPECT_FALSE(save.in_flight());
  EXPECT_EQ(store_.newest()->state.step, 3);
  save.begin(run.now(), true);
  EXPECT_EQ(save.publish(), run.digest());
  EXPECT_EQ(fs::read_symlink(checkpoints() + "/best"), "step-23");
}

TEST_F(Checkpoint, AFailedBackgroundSaveIsOverAndTheNextOneWorks) {
  SmallRun run(1);
  run.save(store_);
  run.update();
  BackgroundSave save(store_, run.facts());
  fs::rename(checkpoints(), scratch_.file("moved"));
  std::ofstream(checkpoints()) << "a file in the place of the directory";
  save.begin(run.now(), false);
  try {
    save.publish();
    ADD_FAILURE() << "published into nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("Not a directory"));
  }
  EXPECT_FALSE(save.in_flight());
  fs::remove(checkpoints());
  fs::rename(scratch_.file("moved"), checkpoints());
  EXPECT_EQ(store_.newest()->state.step, 1);
  save.begin(run.now(), false);
  save.publish();
  EXPECT_EQ(store_.newest()->state.step, 2);
}

TEST_F(Checkpoint, EveryDamagedFileIsFoundAndTheOlderOneTaken) {
  for (const char* name : {"manifest.json", "model.h5", "optimizer-2.h5"}) {
    SmallRun run(1);
    run.save(store_);
    run.update();
    run.save(store_);
    const std::string path = store_.directory_of(2) + "/" + name;
    damage(path, read_bytes(path).size() / 2);
    testing::internal::CaptureStderr();
    EXPECT_EQ(store_.newest()->directory, store_.directory_of(1));
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_THAT(warning, HasSubstr("step-2 is rejected"));
    EXPECT_THAT(warning, HasSubstr(name));
  }
}

TEST_F(Checkpoint, AnEditedManifestIsFound) {
  SmallRun(1).save(store_);
  const std::string path = store_.directory_of(1) + "/manifest.json";
  std::string text = read_bytes(path);
  const auto at = text.find("\"cursor\": 64");
  ASSERT_NE(at, std::string::npos);
  text[at + 10] = '7';
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_THROW(verify_checkpoint(store_.directory_of(1)), Error);
}

TEST_F(Checkpoint, TruncatedAndMissingFilesAreFound) {
  SmallRun run(1);
  run.save(store_);
  run.update();
  run.save(store_);
  fs::resize_file(store_.directory_of(2) + "/optimizer-0.h5", 100);
  testing::internal::CaptureStderr();
  EXPECT_EQ(store_.newest()->directory, store_.directory_of(1));
  fs::remove(store_.directory_of(1) + "/model.h5");
  EXPECT_THROW(store_.newest(), Error);
  testing::internal::GetCapturedStderr();
}

TEST_F(Checkpoint, NothingThereIsNoError) { EXPECT_FALSE(store_.newest().has_value()); }

TEST_F(Checkpoint, ADamagedStepIsReplacedWhenTheRunComesToItAgain) {
  SmallRun run(2);
  run.save(store_);
  damage(store_.directory_of(2) + "/model.h5", 5000);
  EXPECT_THROW(verify_checkpoint(store_.directory_of(2)), Error);
  run.save(store_);
  EXPECT_NO_THROW(verify_checkpoint(store_.directory_of(2)));
  EXPECT_THAT(names_in(checkpoints()), ElementsAre("latest", "step-2"));
}

TEST_F(Checkpoint, AFailedSaveLeavesTheFormerOneAndNothingElse) {
  SmallRun run(1);
  run.save(store_);
  run.update();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  ExitCode code = ExitCode::kDone;
  std::string message;
  try {
    run.save(store_);
  } catch (const Error& error) {
    code = error.code();
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, ExitCode::kIo);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr("model.h5"));
  EXPECT_THAT(names_in(checkpoints()), ElementsAre("latest", "step-1"));
  EXPECT_EQ(store_.newest()->directory, store_.directory_of(1));
}

TEST_F(Checkpoint, LeftoversOfAKilledSaveAreRemoved) {
  fs::create_directories(checkpoints() + "/.step-7.tmp");
  fs::create_directories(checkpoints() + "/.step-7.old");
  fs::create_directories(checkpoints() + "/.mine.tmp");
  fs::create_symlink("step-7", checkpoints() + "/.latest.tmp");
  SmallRun(1).save(store_);
  store_.remove_leftovers();
  EXPECT_THAT(names_in(checkpoints()), ElementsAre(".mine.tmp", "latest", "step-1"));
}

TEST_F(Checkpoint, AnotherModelsCheckpointIsRefused) {
  SmallRun(1).save(store_);
  Config config = tiny_config();
  config.model.hidden = 16;
  SmallRun other(0, config);
  EXPECT_THROW(load_checkpoint(*store_.newest(), other.model, other.optimizer, other.state), Error);
  config = tiny_config();
  config.train.dtype = DType::kF64;
  SmallRun wide(0, config);
  EXPECT_THROW(load_checkpoint(*store_.newest(), wide.model, wide.optimizer, wide.state), Error);
}

}  // namespace
}  // namespace gau
