// gau plan beside what happens: peak memory of the same training, and operations that a trainer counts.
#include "train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "train/step_operations.h"

namespace gau {
namespace {

using testing::HasSubstr;

constexpr const char* kTiny =
    "[model]\nlayers = 2\nhidden = 32\nintermediate = 48\nkey_size = 16\n[data]\nlength = 32\nbatch = 8\n";
constexpr const char* kW2 =
    "[model]\nlayers = 4\nhidden = 256\nintermediate = 512\nkey_size = 64\n[data]\nlength = 64\nbatch = 64\n";

class PlanCommand : public testing::Test {
 protected:
  // Documents that hold every character of a vocabulary of that size.
  std::string corpus(int vocabulary) const {
    std::string text;
    for (int document = 0; document < 40; ++document) {
      for (int i = 0; i < vocabulary - 5; ++i) {
        const int character = 0x4e00 + (i * 7 + document) % (vocabulary - 5);
        for (const int byte : {0xe0 | (character >> 12), 0x80 | ((character >> 6) & 63), 0x80 | (character & 63)})
          text += static_cast<char>(byte);
      }
      text += '\n';
    }
    const auto prepared = run_gau("prepare --quiet --min-count 1 --valid 0.1 '" + directory_.write("text.txt", text) +
                                  "' -o '" + directory_.file("corpus.h5") + "'");
    EXPECT_EQ(prepared.code, 0) << prepared.err;
    return directory_.file("corpus.h5");
  }

  nlohmann::json plan(const std::string& arguments) const {
    const auto result = run_gau("plan --json --rate 100 --memory-rate 20 " + arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  // Largest resident size of the program, bytes.
  double peak(const std::string& arguments) const {
    const std::string command = "exec '" GAU_PROGRAM "' " + arguments + " >/dev/null 2>'" + directory_.file("err") + "'";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = 0;
    rusage used{};
    wait4(child, &status, 0, &used);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_text(directory_.file("err"));
    return static_cast<double>(used.ru_maxrss) * 1024;
  }

  // Forecast / measured of a run that trains, validates and saves beside training.
  double forecast_of_memory(const char* config, int vocabulary) const {
    const std::string path = "'" + directory_.write("c.toml", config) + "' --set data.corpus='" + corpus(vocabulary) + "'";
    const double forecast = plan(path)["memory_bytes"];
    return forecast / peak("train " + path + " --quiet --set optim.steps=4 --set train.save_every=2 --set train.threads=1 " +
                           "--set train.output='" + directory_.file("run") + "'");
  }

  TestDirectory directory_;
};

class PlanCommandSlow : public PlanCommand {};

// The factor that docs/scaling.md states.
constexpr double kFactor = 1.4;

TEST_F(PlanCommand, MemoryOfATinyModel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  const double ratio = forecast_of_memory(kTiny, 60);
  EXPECT_LT(ratio, kFactor);
  EXPECT_GT(ratio, 1 / kFactor);
}

TEST_F(PlanCommandSlow, MemoryOfASmallModel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  const double ratio = forecast_of_memory(kW2, 4096);
  EXPECT_LT(ratio, kFactor);
  EXPECT_GT(ratio, 1 / kFactor);
}

TEST_F(PlanCommand, PartsAddUp) {
  const auto json = plan("'" + directory_.write("c.toml", kW2) + "' --set model.vocab_size=4096 --ranks 4 --bandwidth 1");
  double memory = 0, time = 0;
  for (const auto& part : json["memory"]) memory += part.get<double>();
  for (const auto& part : json["time"]) time += part.get<double>();
  EXPECT_NEAR(memory, json["memory_bytes"].get<double>(), 1);
  EXPECT_NEAR(time, json["step_seconds"].get<double>(), 1e-9);
  EXPECT_EQ(json["parameters"], 2688000);
}

TEST_F(PlanCommand, RefusesWhatCannotBe) {
  const std::string config = "'" + directory_.write("c.toml", kW2) + "' ";
  const auto no_size = run_gau("plan " + config);
  EXPECT_EQ(no_size.code, 65);
  EXPECT_THAT(no_size.err, HasSubstr("vocab_size"));
  EXPECT_EQ(run_gau("plan " + config + "--set model.vocab_size=100 --ranks 65").code, 64);
  EXPECT_EQ(run_gau("plan " + config + "--ranks 0").code, 64);
  EXPECT_EQ(run_gau("plan " + config + "--bandwidth 0").code, 64);
}

Config w2() { return parse_config(std::string(kW2) + "[optim]\nsteps = 1\n", "w2", {"model.vocab_size=4096"}); }

double part(const std::vector<PlanPart>& parts, const std::string& name) {
  for (const PlanPart& part : parts)
    if (part.name == name) return part.value;
  ADD_FAILURE() << "no part " << name;
  return 0;
}

TEST(Plan, SharesWorkAndMemoryAmongRanks) {
  PlanRequest request;
  request.product_rate = 1e11;
  request.memory_rate = 2e10;
  Config config = w2();
  const Plan one = make_plan(config, request);
  EXPECT_DOUBLE_EQ(part(one.time, "products"), step_operations(config.model, 4096, 64, 4096 * 0.15) / (0.9 * 1e11));
  EXPECT_EQ(one.exchange_seconds, 0);
  EXPECT_DOUBLE_EQ(one.efficiency(1), 1);

  request.ranks = 4;
  const Plan four = make_plan(config, request);
  EXPECT_DOUBLE_EQ(part(four.time, "products"), part(one.time, "products") / 4);
  EXPECT_DOUBLE_EQ(part(four.memory, "moments"), part(one.memory, "moments"));
  EXPECT_DOUBLE_EQ(part(four.memory, "sums of shards"), part(one.memory, "sums of shards") / 3) << "two shards of eight";

  config.train.zero = true;
  EXPECT_DOUBLE_EQ(part(make_plan(config, request).memory, "moments"), part(one.memory, "moments") / 4);

  EXPECT_DOUBLE_EQ(part(one.memory, "packed weights"), 2 * part(one.memory, "parameters"));
  config.train.dtype = DType::kBF16;
  EXPECT_DOUBLE_EQ(part(make_plan(config, request).memory, "packed weights"), part(one.memory, "parameters"));
  request.ranks = 8;
  EXPECT_EQ(part(make_plan(config, request).memory, "packed weights"), 0) << "each weight is used once";
}

TEST(Plan, ExchangeFollowsBandwidthAndHidesBehindBackward) {
  PlanRequest request;
  request.product_rate = 1e11;
  request.memory_rate = 2e10;
  request.ranks = 2;
  request.latency = 0;
  request.bandwidth = 1e9;
  Config config = w2();
  const Plan slow = make_plan(config, request);
  const double bytes = 2688000 * 4.0;  // half of the gradient and half of the sums
  EXPECT_NEAR(slow.exchange_seconds, bytes * 8 / 1e9, 1e-3);
  EXPECT_GT(slow.hidden_seconds, 0);
  EXPECT_LT(slow.hidden_seconds, slow.exchange_seconds);
  config.train.wire = DType::kBF16;
  EXPECT_NEAR(make_plan(config, request).exchange_seconds, bytes * 4 / 1e9, 1e-3);
  config.train.wire = DType::kF32;
  request.bandwidth = 1e11;
  const Plan fast = make_plan(config, request);
  EXPECT_NEAR(fast.exchange_seconds - fast.hidden_seconds, 4096 * 256 * 4.0 * 8 / 1e11, 1e-3) << "the embedding's part alone";
}

}  // namespace
}  // namespace gau
