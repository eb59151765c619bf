// Recall by distance: against a plain computation from logits and attention, and how it is reported.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "data/synthetic.h"
#include "framework/thread_ranks.h"
#include "tests/train/scratch.h"
#include "train/eval_corpus.h"
#include "train/eval_recall.h"
#include "train/report.h"
#include "train/report_recall.h"

namespace gau {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EvalCorpus recall_corpus(const Scratch& scratch, bool dense = false) {
  SyntheticOptions options;
  options.kind = SyntheticKind::kRecall;
  options.output = scratch.file("recall.h5");
  options.documents = 12;
  options.lengths = {24, 100};
  options.facts = 4;
  options.dense = dense;
  options.distances = {1, 32, 64, 256};
  options.fractions = {0, 1};
  make_synthetic(options);
  return read_eval_corpus(Corpus(options.output), Split::kTest);
}

Model tiny_model() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 16;
  config.intermediate = 24;
  config.key_size = 8;
  config.vocab_size = 581;
  config.attention.train_length = 24;
  Model model(config, DType::kF64);
  model.initialize(3);
  // As wide as after some training, so that losses and weights differ from query to query.
  Tensor values = model.parameters().values();
  double* value = values.data<double>();
  for (std::int64_t i = 0; i < values.size(); ++i) value[i] *= 3;
  return model;
}

TEST(Recall, ChoicesAreTheFactsOfAClass) {
  const auto choices = answer_choices({"[PAD]", "0:0", "1:0", "0:1", "?0", "f0", "a:1", "3:", ":3", "1:x"});
  EXPECT_THAT(choices[1], ElementsAre(1, 3));
  EXPECT_THAT(choices[3], ElementsAre(1, 3));
  EXPECT_THAT(choices[2], ElementsAre(2));
  for (const std::size_t id : {0, 4, 5, 6, 7, 8, 9}) EXPECT_TRUE(choices[id].empty()) << id;
}

/// Sums of one length, by range of distances and side.
struct Plain {
  double queries = 0, correct = 0, loss = 0, highest = 0, last = 0;
};

std::map<std::pair<std::int64_t, RecallSide>, Plain> plain_recall(const Model& model, const EvalCorpus& corpus,
                                                                  std::int64_t length) {
  std::map<std::pair<std::int64_t, RecallSide>, Plain> sums;
  NoGrad no_grad;
  for (const EvalDocument& document : corpus.documents) {
    if (static_cast<std::int64_t>(document.tokens.size()) != length) continue;
    Planner planner(model.config(), parse_method("rerope:w=6"), DType::kF64);
    ModelInputs inputs;
    inputs.ids = Tensor::from(document.tokens, {1, length});
    const Tensor logits = model.logits(Context{}, model.hidden(Context{}, inputs, planner), length, {}).value();
    const std::vector<Tensor> attention = model.attention(inputs, planner);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int32_t label = document.labels[static_cast<std::size_t>(i)];
      if (label < 0) continue;
      std::int64_t fact = 0;
      while (document.tokens[static_cast<std::size_t>(fact)] != label) ++fact;
      // Facts of a class are 16 rows of the vocabulary, behind the 5 special tokens.
      const std::int32_t first = 5 + (label - 5) / 16 * 16;
      double among = 0, best = -1e300;
      std::int32_t likeliest = 0;
      for (std::int32_t v = 0; v < 581; ++v) {
        const double logit = logits.at(i * 581 + v);
        if (v >= first && v < first + 16) among += std::exp(logit);
        if (logit > best) likeliest = v;
        best = std::max(best, logit);
      }
      const std::int64_t distance = std::abs(i - fact);
      const std::int64_t range = distance == 1 ? 1 : distance <= 32 ? 2 : distance <= 64 ? 33 : 65;
      const double weights[2] = {attention[0].at(i * length + fact), attention[1].at(i * length + fact)};
      for (const std::int64_t column : {std::int64_t{0}, range}) {
        for (const RecallSide side : {RecallSide::kBoth, fact < i ? RecallSide::kLeft : RecallSide::kRight}) {
          Plain& sum = sums[{column, side}];
          sum.queries += 1;
          sum.correct += likeliest == label;
          sum.loss += std::log(among) - logits.at(i * 581 + label);
          sum.highest += std::max(weights[0], weights[1]);
          sum.last += weights[1];
        }
      }
    }
  }
  return sums;
}

TEST(Recall, AgreesWithAPlainComputation) {
  const Scratch scratch;
  for (const bool dense : {false, true}) {
    const EvalCorpus corpus = recall_corpus(scratch, dense);
    const Model model = tiny_model();
    EvalOptions options;
    options.label = "tiny";
    options.protocol = Protocol::kLabels;
    options.methods = {parse_method("rerope:w=6")};
    options.batch_tokens = 250;
    const Evaluation evaluation = evaluate(model, corpus, options);
    std::size_t found = 0;
    bool first_layer_wins = false;
    for (const std::int64_t length : {24, 100}) {
      auto expected = plain_recall(model, corpus, length);
      found += expected.size();
      for (const RecallRow& row : evaluation.recall) {
        if (row.length != length) continue;
        const bool whole = row.first == 1 && row.last == length - 1;
        const auto sum = expected.find({whole ? 0 : row.first, row.side});
        ASSERT_NE(sum, expected.end()) << row.first;
        const Plain& plain = sum->second;
        EXPECT_EQ(static_cast<double>(row.queries), plain.queries);
        EXPECT_NEAR(row.accuracy, plain.correct / plain.queries, 1e-12);
        EXPECT_NEAR(row.loss, plain.loss / plain.queries, 1e-9);
        EXPECT_NEAR(row.attention, plain.highest / plain.queries, 1e-9);
        EXPECT_NEAR(row.attention_last, plain.last / plain.queries, 1e-9);
        EXPECT_GE(row.attention, row.attention_last);
        first_layer_wins = first_layer_wins || row.attention > row.attention_last;
      }
    }
    EXPECT_EQ(evaluation.recall.size(), found);
    EXPECT_TRUE(first_layer_wins);
    // The figures of all queries are those of the ordinary table.
    EXPECT_NEAR(evaluation.recall.front().accuracy, evaluation.rows.front().accuracy.value, 1e-12);
    EXPECT_LT(evaluation.recall.front().loss, evaluation.rows.front().loss.value);
  }
}

TEST(Recall, ThreeRanksGatherWhatOneDoes) {
  const Scratch scratch;
  const EvalCorpus corpus = recall_corpus(scratch);
  const Model model = tiny_model();
  EvalOptions options;
  options.label = "tiny";
  options.protocol = Protocol::kLabels;
  options.batch_tokens = 48;
  const Evaluation one = evaluate(model, corpus, options);
  ASSERT_FALSE(one.recall.empty());
  run_as_threads(3, [&](Communicator& ranks) {
    const Evaluation many = evaluate(model, corpus, options, ranks);
    ASSERT_EQ(many.recall.size(), one.recall.size());
    for (std::size_t i = 0; i < one.recall.size(); ++i) {
      EXPECT_EQ(many.recall[i].accuracy, one.recall[i].accuracy);
      EXPECT_EQ(many.recall[i].loss, one.recall[i].loss);
      EXPECT_EQ(many.recall[i].attention, one.recall[i].attention);
      EXPECT_EQ(many.recall[i].attention_last, one.recall[i].attention_last);
    }
  });
}

TEST(Recall, AccuracyIsTheShareOfRightQueries) {
  const Scratch scratch;
  const EvalCorpus corpus = recall_corpus(scratch);
  const Model model = tiny_model();
  const TargetSet targets = labelled_targets(corpus.documents, 24);
  const std::vector<EvalWindow> windows = whole_windows(targets);
  const ScoringTask task{model, corpus, targets, windows, 24, MaskMode::kNone, 1000};
  const RecallProbe probe(task);
  ASSERT_TRUE(probe.applies());
  TargetScores scores;
  double right = 0;
  // Right where the fact is on the left.
  for (const DocumentTargets& entry : targets.documents) {
    const EvalDocument& document = corpus.documents[static_cast<std::size_t>(entry.document)];
    for (const std::int64_t position : entry.positions) {
      const auto query = document.tokens.begin() + position;
      const std::int32_t label = document.labels[static_cast<std::size_t>(position)];
      scores.correct.push_back(std::find(document.tokens.begin(), query, label) != query);
      right += scores.correct.back();
    }
  }
  ASSERT_GT(right, 0);
  for (const RecallRow& row : probe.rows("m", scores)) {
    if (row.side != RecallSide::kBoth) {
      EXPECT_EQ(row.accuracy, row.side == RecallSide::kLeft ? 1 : 0);
    } else if (row.last == 23) {
      EXPECT_NEAR(row.accuracy * static_cast<double>(row.queries), right, row.first == 1 ? 1e-9 : right);
    }
  }
}

TEST(Recall, OtherLabelsAreLeftAlone) {
  const Scratch scratch;
  const EvalCorpus good = recall_corpus(scratch);
  const Model model = tiny_model();
  EvalOptions options;
  options.protocol = Protocol::kLabels;
  EXPECT_FALSE(evaluate(model, good, options).recall.empty());
  EvalCorpus unnamed = good;
  unnamed.answer_choices.clear();
  EXPECT_TRUE(evaluate(model, unnamed, options).recall.empty());
  EvalCorpus twice = good;
  for (EvalDocument& document : twice.documents) {
    for (const std::int32_t label : document.labels) {
      if (label >= 0) document.tokens[0] = label;
    }
  }
  EXPECT_TRUE(evaluate(model, twice, options).recall.empty());
}

Evaluation made_evaluation() {
  Evaluation evaluation;
  evaluation.model = "a,b";
  evaluation.protocol = "labels";
  EvalRow row;
  row.method = "rope";
  row.length = 4096;
  evaluation.rows = {row};
  evaluation.recall = {{"rope", 4096, RecallSide::kBoth, 1, 4095, 800, 0.25, 2.5, 0.125, 0.0625},
                       {"rope", 4096, RecallSide::kBoth, 1025, 4095, 300, 0.5, 1.5, 0.25, 0.125},
                       {"rope", 4096, RecallSide::kRight, 1, 1, 90, 1, 0, 0.75, 0.5}};
  return evaluation;
}

TEST(RecallReport, TextCsvAndJson) {
  const Evaluation evaluation = made_evaluation();
  const std::string text = text_table(std::span(&evaluation, 1));
  EXPECT_THAT(text, HasSubstr("accuracy, %                all          1  1025-4095\n"
                              "rope at 4096, both        25.0                  50.0\n"
                              "rope at 4096, right                 100.0\n"));
  EXPECT_THAT(text, HasSubstr("attention on fact          all          1  1025-4095\n"
                              "rope at 4096, both       0.125                 0.250\n"));
  const std::string csv = recall_csv(std::span(&evaluation, 1));
  EXPECT_THAT(csv, HasSubstr("attention_last\n\"a,b\",rope,4096,both,1,4095,800,0.25,2.5,0.125,0.0625\n"));
  const auto json = to_json(evaluation);
  EXPECT_EQ(json["recall"].size(), 3U);
  EXPECT_EQ(json["recall"][2].dump(),
            R"({"method":"rope","length":4096,"side":"right","distance_first":1,"distance_last":1,"queries":90,)"
            R"("accuracy":1.0,"loss":0.0,"attention":0.75,"attention_last":0.5})");
}

TEST(RecallReport, NothingWhereNothingWasMeasured) {
  Evaluation evaluation = made_evaluation();
  evaluation.recall.clear();
  EXPECT_THAT(text_table(std::span(&evaluation, 1)), testing::Not(HasSubstr("recall")));
  EXPECT_EQ(recall_csv(std::span(&evaluation, 1)), "");
  EXPECT_FALSE(to_json(evaluation).contains("recall"));
}

}  // namespace
}  // namespace gau
