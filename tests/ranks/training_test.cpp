// Training and evaluation by mpirun: the bits of one process.
#include <regex>

#include "tests/ranks/job.h"

namespace gau {
namespace {

class RanksSlow : public Job {};

TEST_F(Job, FourRanksTrainAsOne) {
  const JobResult one = run_command("'" GAU_PROGRAM "' " + train_arguments("one"));
  const JobResult four = train(4, "four");
  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(four.code, 0) << four.err;
  EXPECT_EQ(four.json()["digest"], one.json()["digest"]);
  EXPECT_EQ(four.json()["loss"], one.json()["loss"]);
  EXPECT_EQ(checkpoint("four"), checkpoint("one"));
  EXPECT_EQ(four.left, 0);
}

TEST_F(RanksSlow, OneStepHasOneHash) {
  const std::string one = train(1, "one", "--set optim.steps=1 --set data.batch=16").json()["digest"];
  for (const int ranks : {2, 4, 8}) {
    for (const char* bucket : {"777", "4096", "1000000"}) {
      const std::string name = std::to_string(ranks) + "-" + bucket;
      const JobResult many =
          train(ranks, name, std::string("--set optim.steps=1 --set data.batch=16 --set train.bucket=") + bucket);
      ASSERT_EQ(many.code, 0) << many.err;
      EXPECT_EQ(many.json()["digest"], one) << ranks << " ranks, buckets of " << bucket;
    }
  }
}

TEST_F(RanksSlow, CheckpointsAreEqualToTheByte) {
  const std::string steps = "--set optim.steps=20 --set optim.accumulate=2 --set train.save_every=7 ";
  train(1, "one", steps);
  const auto wanted = checkpoint("one");
  ASSERT_EQ(wanted.size(), 10U);
  for (const int ranks : {2, 4}) {
    for (const char* zero : {"false", "true"}) {
      const std::string name = std::to_string(ranks) + zero;
      const JobResult many = train(ranks, name, steps + "--set train.bucket=3001 --check-replicas 1 --set train.zero=" + zero);
      ASSERT_EQ(many.code, 0) << many.err;
      EXPECT_EQ(checkpoint(name), wanted) << ranks << " ranks, zero = " << zero;
    }
  }
  const JobResult three = train(3, "three", steps);
  EXPECT_THAT(three.err, testing::HasSubstr("order of ranks"));
  EXPECT_NEAR(three.json()["loss"].get<double>(), train(1, "again", steps).json()["loss"].get<double>(), 1e-5);
}

TEST_F(RanksSlow, ResumesOnOtherNumbersOfRanks) {
  struct Leg {
    int ranks;
    const char* zero;
    int end;  // a signal that the last rank sends itself ends it there
  };
  const std::string steps =
      "--set optim.steps=20 --set optim.accumulate=2 --set train.save_every=100 --set train.eval_every=5 ";
  ASSERT_EQ(train(1, "straight", steps).code, 0);
  const auto wanted = checkpoint("straight");
  for (const std::vector<Leg>& legs : std::vector<std::vector<Leg>>{{{4, "true", 6}, {2, "false", 13}, {1, "false", 20}},
                                                                    {{2, "true", 7}, {4, "true", 9}, {2, "true", 20}}}) {
    const std::string name = "legs" + std::to_string(legs.front().ranks);
    for (const Leg& leg : legs) {
      const std::string fault =
          leg.end < 20 ? std::to_string(leg.ranks - 1) + " " + std::to_string(leg.end - 1) + " 0 2 usr1" : "";
      const JobResult result =
          train(leg.ranks, name, steps + "--resume --set train.bucket=2000 --set train.zero=" + leg.zero, fault);
      ASSERT_EQ(result.code, leg.end < 20 ? 75 : 0) << result.err;
      EXPECT_EQ(result.json()["step"], leg.end) << result.err;
    }
    EXPECT_EQ(checkpoint(name), wanted);
  }
}

TEST_F(RanksSlow, EvaluatesAsOne) {
  ASSERT_EQ(train(2, "run").code, 0);
  const std::string arguments =
      "eval '" + output("run") + "' --quiet --json --lengths 32,48 --methods rope,rope+logn --threads 1 ";
  const auto figures = [](const JobResult& result) {
    EXPECT_EQ(result.code, 0) << result.err;
    nlohmann::json json = result.json();
    for (auto& row : json["results"]) row.erase("seconds");
    return json;
  };
  for (const int targets : {1, 2, 3, 4, 5, 6, 7, 0}) {
    const std::string some = arguments + "--targets " + std::to_string(targets);
    EXPECT_EQ(figures(run(4, some)), figures(run_command("'" GAU_PROGRAM "' " + some))) << targets << " targets";
  }
  const JobResult none = run(4, "eval '" + output("run") + "' --quiet --lengths 4000 --threads 1");
  EXPECT_EQ(none.code, 65);
  EXPECT_LT(none.seconds, 10);
}

TEST_F(RanksSlow, SharedSequencesEvaluateAsOne) {
  const std::string text = output("long.txt");
  {
    std::ofstream out(text);
    for (int d = 0; d < 8; ++d) {
      for (int i = 0; i < 900; ++i) out << static_cast<char>('a' + (i * i + 7 * i * (d + 1) + i / 3) % 26);
      out << '\n';
    }
  }
  ASSERT_EQ(
      run_command("'" GAU_PROGRAM "' prepare '" + text + "' -o '" + output("long.h5") + "' --valid 0.3 --test 0.3 --quiet")
          .code,
      0);
  ASSERT_EQ(train(1, "run", "--set data.corpus='" + output("long.h5") + "' --set optim.steps=4").code, 0);
  const auto report = [&](const std::string& name) {
    std::string text_of = read_text(output(name) + "/eval.json");
    return std::regex_replace(text_of, std::regex("\"seconds\": *[-+.0-9e]+"), "");
  };
  const std::string arguments =
      "eval '" + output("run") + "' --quiet --lengths 300,850 --methods rope,rope+logn,rerope:w=31 --threads 1 --out ";
  ASSERT_EQ(run_command("'" GAU_PROGRAM "' " + arguments + "'" + output("one") + "'").code, 0);
  for (const int ranks : {2, 3, 4}) {
    const std::string name = "shared" + std::to_string(ranks);
    const JobResult many = run(ranks, arguments + "'" + output(name) + "' --sequence-parallel on");
    ASSERT_EQ(many.code, 0) << many.err;
    EXPECT_EQ(report(name), report("one")) << ranks << " ranks";
  }
  const JobResult ring = run(3, arguments + "'" + output("ring") + "' --json --sequence-parallel on --sequence-exchange ring");
  ASSERT_EQ(ring.code, 0) << ring.err;
  const auto loss = [](const nlohmann::json& evaluation, std::size_t row) {
    return evaluation["results"][row]["loss"].get<double>();
  };
  const nlohmann::json alone = nlohmann::json::parse(read_text(output("one") + "/eval.json"));
  ASSERT_GE(alone["results"].size(), 6);
  for (std::size_t row = 0; row < 6; ++row) EXPECT_NEAR(loss(ring.json(), row), loss(alone, row), 2e-6 * loss(alone, row));
}

TEST_F(RanksSlow, SharedSequencesTrainAsOne) {
  const std::string steps = "--set optim.steps=8 --set data.length=300 --set data.batch=4 ";
  const JobResult one = run_command("'" GAU_PROGRAM "' " + train_arguments("one", steps));
  ASSERT_EQ(one.code, 0) << one.err;
  std::string digest;
  for (const int ranks : {2, 4}) {
    const JobResult shared = train(ranks, "shared" + std::to_string(ranks), steps + "--set train.sequence_parallel=2");
    ASSERT_EQ(shared.code, 0) << shared.err;
    EXPECT_NEAR(shared.json()["loss"].get<double>(), one.json()["loss"].get<double>(), 1e-5);
    if (ranks == 2) digest = shared.json()["digest"];
    EXPECT_EQ(shared.json()["digest"], digest) << "one group and two";
  }
  const JobResult ring = train(2, "ring", steps + "--set train.sequence_parallel=2 --set train.sequence_exchange=ring");
  ASSERT_EQ(ring.code, 0) << ring.err;
  EXPECT_NEAR(ring.json()["loss"].get<double>(), one.json()["loss"].get<double>(), 1e-5);
  const JobResult odd = train(2, "odd", steps + "--set train.sequence_parallel=3");
  EXPECT_EQ(odd.code, 64);
  EXPECT_THAT(odd.err, testing::HasSubstr("sequence_parallel = 3"));
}

}  // namespace
}  // namespace gau
