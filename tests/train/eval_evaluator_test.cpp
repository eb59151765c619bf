// The evaluator on tiny random models: against a plain computation, across batch sizes, over all methods and protocols.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "framework/allocator.h"
#include "framework/error.h"
#include "framework/thread_ranks.h"
#include "train/eval_scoring.h"
#include "train/evaluator.h"

namespace gau {
namespace {

constexpr std::int32_t kMask = 4;
constexpr std::int64_t kVocabulary = 50;
constexpr std::int64_t kTrainLength = 8;

ModelConfig tiny_config() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 16;
  config.intermediate = 32;
  config.key_size = 8;
  config.vocab_size = kVocabulary;
  config.attention.train_length = kTrainLength;
  return config;
}

Model tiny_model(DType dtype = DType::kF32) {
  Model model(tiny_config(), dtype);
  model.initialize(3);
  return model;
}

EvalCorpus random_corpus(std::size_t documents, std::size_t shortest, std::size_t spread) {
  std::mt19937 generator(5);
  EvalCorpus corpus;
  corpus.path = "made.h5";
  corpus.split = "test";
  corpus.special_ids = {0, 1, 2, 3, kMask};
  corpus.mask_id = kMask;
  for (std::size_t d = 0; d < documents; ++d) {
    EvalDocument document;
    document.index = static_cast<std::int64_t>(d);
    document.tokens.resize(shortest + generator() % (spread + 1));
    for (std::int32_t& token : document.tokens) token = static_cast<std::int32_t>(5 + generator() % 45);
    corpus.documents.push_back(std::move(document));
  }
  return corpus;
}

EvalOptions options_of(std::vector<std::int64_t> lengths) {
  EvalOptions options;
  options.label = "tiny";
  options.lengths = std::move(lengths);
  return options;
}

const EvalRow& find(const Evaluation& evaluation, const std::string& method, std::int64_t length) {
  for (const EvalRow& row : evaluation.rows) {
    if (row.method == method && row.length == length) return row;
  }
  throw std::runtime_error("no row " + method);
}

/// Cross-entropy of `label` at `position`, from the logits of all positions.
double plain_loss(const Model& model, const std::vector<std::int32_t>& ids, std::int64_t position, std::int32_t label) {
  NoGrad no_grad;
  const auto length = static_cast<std::int64_t>(ids.size());
  Planner planner(model.config(), Method{}, model.dtype());
  ModelInputs inputs;
  inputs.ids = Tensor::from(ids, {1, length});
  const Variable hidden = model.hidden(Context{}, inputs, planner);
  const Tensor logits = model.logits(Context{}, hidden, length, {}).value();
  double sum = 0;
  for (std::int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(logits.at(position * kVocabulary + v));
  return std::log(sum) - logits.at(position * kVocabulary + label);
}

TEST(Evaluate, AgreesWithAPlainComputationOfTheProtocol) {
  const Model model = tiny_model(DType::kF64);
  const EvalCorpus corpus = random_corpus(4, 30, 40);
  constexpr std::int64_t kLength = 16;
  const TargetSet targets = spaced_targets(corpus.documents, {32, kTrainLength, 0, 0, corpus.special_ids});
  double full = 0;
  double crop = 0;
  for (const DocumentTargets& entry : targets.documents) {
    const auto& tokens = corpus.documents[static_cast<std::size_t>(entry.document)].tokens;
    const auto size = static_cast<std::int64_t>(tokens.size());
    auto masked = tokens;
    for (std::int64_t p : entry.positions) masked[static_cast<std::size_t>(p)] = kMask;
    const auto window = [&](std::int64_t start, std::int64_t length) {
      return std::vector<std::int32_t>(masked.begin() + start, masked.begin() + start + length);
    };
    for (std::int64_t p : entry.positions) {
      const std::int32_t label = tokens[static_cast<std::size_t>(p)];
      std::int64_t start = 0;
      while (p >= start + 3 * kLength / 4) start += kLength / 2;
      start = std::min(start, size - kLength);
      full += plain_loss(model, window(start, kLength), p - start, label);
      const std::int64_t crop_start = std::clamp<std::int64_t>(p - kTrainLength / 2, 0, size - kTrainLength);
      crop += plain_loss(model, window(crop_start, kTrainLength), p - crop_start, label);
    }
  }
  const Evaluation evaluation = evaluate(model, corpus, options_of({kLength, 32}));
  const auto total = static_cast<double>(targets.total);
  const EvalRow& row = find(evaluation, "rope", kLength);
  EXPECT_EQ(row.targets, targets.total);
  EXPECT_EQ(row.skipped, targets.skipped);
  EXPECT_NEAR(row.loss.value, full / total, 1e-10);
  EXPECT_NEAR(find(evaluation, kCropMethod, kTrainLength).loss.value, crop / total, 1e-10);
  EXPECT_NEAR(row.delta.value, (full - crop) / total, 1e-10);
  EXPECT_NE(full, crop);
}

TEST(Evaluate, DoesNotDependOnTheBatch) {
  const Model model = tiny_model();
  const EvalCorpus corpus = random_corpus(24, 40, 50);
  EvalOptions options = options_of({8, 16, 40});
  const Evaluation reference = evaluate(model, corpus, options);
  for (std::int64_t tokens : {1, 50, 333}) {
    options.batch_tokens = tokens;
    const Evaluation other = evaluate(model, corpus, options);
    ASSERT_EQ(other.rows.size(), reference.rows.size());
    for (std::size_t r = 0; r < other.rows.size(); ++r) {
      EXPECT_NEAR(other.rows[r].loss.value, reference.rows[r].loss.value, 1e-6);
      EXPECT_NEAR(other.rows[r].loss.low, reference.rows[r].loss.low, 1e-6);
      EXPECT_NEAR(other.rows[r].accuracy.value, reference.rows[r].accuracy.value, 1e-12);
    }
  }
}

TEST(Evaluate, SameTargetsAtEveryLengthAndUnitsAreSaid) {
  const Model model = tiny_model();
  EvalCorpus corpus = random_corpus(24, 40, 50);
  corpus.documents[0].tokens.resize(39);
  corpus.documents[1].tokens.clear();
  const Evaluation evaluation = evaluate(model, corpus, options_of({40, 8, 16, 8}));
  ASSERT_EQ(evaluation.rows.size(), 4u);  // crop and three lengths, the doubled one once
  for (const EvalRow& row : evaluation.rows) {
    EXPECT_EQ(row.targets, evaluation.rows[0].targets);
    EXPECT_EQ(row.documents, 22);
    EXPECT_EQ(row.skipped, 2);
    EXPECT_EQ(row.intervals, "bootstrap over documents");
    EXPECT_LT(row.loss.low, row.loss.value);
    EXPECT_GT(row.loss.high, row.loss.value);
    EXPECT_GT(row.entropy, 0);
    EXPECT_LE(row.entropy, std::log(static_cast<double>(row.length)));
  }
  EXPECT_TRUE(std::isnan(evaluation.rows[0].delta.value));
  corpus.documents.resize(6);
  EXPECT_THAT(evaluate(model, corpus, options_of({40})).rows[0].intervals, ::testing::HasSubstr("over blocks"));
}

TEST(Evaluate, AModelThatKnowsNothingHasThePerplexityOfItsVocabulary) {
  Model model = tiny_model();
  for (const Parameter& parameter : model.parameters().list()) {
    Tensor values = parameter.variable.value();
    for (float& v : values.span<float>()) v *= 0.01F;
  }
  const Evaluation evaluation = evaluate(model, random_corpus(20, 32, 0), options_of({8, 32}));
  for (const EvalRow& row : evaluation.rows) EXPECT_NEAR(row.perplexity(), kVocabulary, 0.02 * kVocabulary);
}

TEST(Evaluate, RunsEveryMethod) {
  const Model model = tiny_model();
  EvalOptions options = options_of({8, 24});
  options.methods = parse_methods("all", model.config());
  options.targets = 30;
  ASSERT_GT(options.methods.size(), 8u);
  const Evaluation evaluation = evaluate(model, random_corpus(5, 60, 10), options);
  EXPECT_EQ(evaluation.rows.size(), 1 + 2 * options.methods.size());
  for (const EvalRow& row : evaluation.rows) {
    EXPECT_TRUE(std::isfinite(row.loss.value)) << row.method;
    EXPECT_EQ(row.targets, 30);
  }
}

TEST(Evaluate, PaperProtocolMasksOneTokenAtATime) {
  const Model model = tiny_model(DType::kF64);
  const EvalCorpus corpus = random_corpus(2, 12, 0);
  EvalOptions options = options_of({8, 12});
  options.protocol = Protocol::kPaper;
  double sum = 0;
  for (const EvalDocument& document : corpus.documents) {
    for (std::size_t p = 0; p < 8; ++p) {
      std::vector<std::int32_t> ids(document.tokens.begin(), document.tokens.begin() + 8);
      ids[p] = kMask;
      sum += plain_loss(model, ids, static_cast<std::int64_t>(p), document.tokens[p]);
    }
  }
  const Evaluation evaluation = evaluate(model, corpus, options);
  ASSERT_EQ(evaluation.rows.size(), 2u);
  EXPECT_EQ(evaluation.rows[0].targets, 16);
  EXPECT_EQ(evaluation.rows[1].targets, 24);
  EXPECT_NEAR(evaluation.rows[0].loss.value, sum / 16, 1e-10);
  EXPECT_TRUE(std::isnan(evaluation.rows[0].delta.value));
  options.targets = 3;
  EXPECT_EQ(evaluate(model, corpus, options).rows[1].targets, 6);
}

TEST(Evaluate, LabelsArePredictedFromTheTokensAsTheyAre) {
  const Model model = tiny_model(DType::kF64);
  EvalCorpus corpus = random_corpus(3, 10, 0);
  double sum = 0;
  for (EvalDocument& document : corpus.documents) {
    document.labels.assign(10, -1);
    document.labels[6] = 9;
    sum += plain_loss(model, document.tokens, 6, 9);
  }
  EvalOptions options = options_of({});
  options.protocol = Protocol::kLabels;
  const Evaluation evaluation = evaluate(model, corpus, options);
  ASSERT_EQ(evaluation.rows.size(), 1u);
  EXPECT_EQ(evaluation.rows[0].length, 10);
  EXPECT_EQ(evaluation.rows[0].targets, 3);
  EXPECT_NEAR(evaluation.rows[0].loss.value, sum / 3, 1e-10);
}

ExitCode code_of(const EvalOptions& options, const EvalCorpus& corpus) {
  try {
    evaluate(tiny_model(), corpus, options);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.code();
  }
  return ExitCode::kDone;
}

TEST(Evaluate, RefusesWhatCannotBeRight) {
  EvalCorpus corpus = random_corpus(3, 20, 5);
  EXPECT_EQ(code_of(options_of({1, 8}), corpus), ExitCode::kUsage);
  EXPECT_EQ(code_of(options_of({8, 100}), corpus), ExitCode::kData);
  EvalOptions near = options_of({8, 16});
  near.stride = kTrainLength - 1;
  EXPECT_EQ(code_of(near, corpus), ExitCode::kUsage);
  corpus.mask_id = -1;
  EXPECT_EQ(code_of(options_of({8}), corpus), ExitCode::kData);
  corpus.documents.clear();
  EXPECT_EQ(code_of(options_of({}), corpus), ExitCode::kData);
}

TEST(DefaultLengths, DoubleWhileHalfOfTheDocumentsAreLongEnough) {
  EvalCorpus corpus = random_corpus(0, 1, 0);
  for (std::int64_t size : {4, 8, 16, 32, 33, 64}) {
    corpus.documents.push_back({size, std::vector<std::int32_t>(static_cast<std::size_t>(size), 9), {}});
  }
  EXPECT_EQ(default_lengths(corpus, Protocol::kFixedTarget, 8), (std::vector<std::int64_t>{8, 16, 32}));
}

TEST(Entropy, IsTheMeanOverLayersAndRowsOfTheAttention) {
  const Model model = tiny_model(DType::kF64);
  EvalCorpus corpus = random_corpus(1, 24, 0);
  const Evaluation evaluation = evaluate(model, corpus, options_of({24}));
  EvalDocument& document = corpus.documents[0];
  // Position 8 + phase holds the mask; the one window is the whole document.
  double nearest = 1;
  for (std::size_t masked = 6; masked < 18; ++masked) {
    std::vector<std::int32_t> ids = document.tokens;
    for (std::size_t at = masked; at < 18; at += 8) ids[at] = kMask;
    ModelInputs inputs;
    inputs.ids = Tensor::from(ids, {1, 24});
    Planner planner(model.config(), Method{}, DType::kF64);
    double sum = 0;
    for (const Tensor& weights : model.attention(inputs, planner)) {
      for (const double p : weights.span<double>()) sum -= p * std::log(p);
    }
    nearest = std::min(nearest, std::abs(sum / 48 - evaluation.rows[1].entropy));
  }
  EXPECT_LT(nearest, 1e-12);
}

TEST(ForecastBytes, IsAboveThePeakAndOfItsSize) {
  ModelConfig config = tiny_config();
  config.hidden = 64;
  config.intermediate = 128;
  config.key_size = 32;
  Model model(config);
  model.initialize(1);
  EvalOptions options = options_of({2048});
  options.targets = 64;
  options.crop = false;
  options.methods = {parse_method("rerope:w=4")};
  const EvalCorpus corpus = random_corpus(4, 2048, 0);
  allocator::trim();
  allocator::reset_peak();
  evaluate(model, corpus, options);
  const auto peak = static_cast<double>(allocator::peak());
  const auto forecast = static_cast<double>(forecast_bytes(config, model.dtype(), 4, 2048, 64));
  EXPECT_LE(peak, forecast);
  EXPECT_LE(forecast, 4 * peak);
}

// Ranks without a window join in all the same.
TEST(Evaluate, FourRanksFindWhatOneDoes) {
  const Model model = tiny_model();
  for (const std::size_t documents : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const EvalCorpus corpus = random_corpus(documents, 16, 3);
    EvalOptions options = options_of({8, 16});
    options.batch_tokens = 16;
    options.methods = parse_methods("rope,rope+infoscale", model.config());
    if (documents == 0) {
      EXPECT_THROW(run_as_threads(4, [&](Communicator& ranks) { evaluate(model, corpus, options, ranks); }), Error);
      continue;
    }
    const Evaluation one = evaluate(model, corpus, options);
    run_as_threads(4, [&](Communicator& ranks) {
      const Evaluation many = evaluate(model, corpus, options, ranks);
      ASSERT_EQ(many.rows.size(), one.rows.size());
      for (std::size_t i = 0; i < one.rows.size(); ++i) {
        EXPECT_EQ(many.rows[i].loss.value, one.rows[i].loss.value) << documents << " documents, " << one.rows[i].method;
        EXPECT_EQ(many.rows[i].accuracy.value, one.rows[i].accuracy.value);
        EXPECT_EQ(many.rows[i].entropy, one.rows[i].entropy);
        EXPECT_EQ(many.rows[i].targets, one.rows[i].targets);
      }
    });
  }
}

// The rows of each window shared by ranks: figures of one rank, to the bit.
TEST(Evaluate, SharedSequencesChangeNoFigure) {
  const Model model = tiny_model();
  const EvalCorpus corpus = random_corpus(3, 700, 40);
  EvalOptions options = options_of({20, 300, 700});
  options.stride = 100;
  options.methods = parse_methods("rope,rope+infoscale,window:w=24,rerope:w=16", tiny_config());
  const Evaluation one = evaluate(model, corpus, options);
  options.sequence_parallel = SequenceParallel::kOn;
  for (const int ranks : {2, 3, 4}) {
    run_as_threads(ranks, [&](Communicator& communicator) {
      const Evaluation many = evaluate(model, corpus, options, communicator);
      ASSERT_EQ(many.rows.size(), one.rows.size());
      for (std::size_t i = 0; i < one.rows.size(); ++i) {
        SCOPED_TRACE(one.rows[i].method + " " + std::to_string(one.rows[i].length));
        EXPECT_EQ(many.rows[i].loss.value, one.rows[i].loss.value);
        EXPECT_EQ(many.rows[i].loss.low, one.rows[i].loss.low);
        EXPECT_EQ(many.rows[i].accuracy.value, one.rows[i].accuracy.value);
        EXPECT_EQ(many.rows[i].entropy, one.rows[i].entropy);
      }
    });
  }
}

TEST(Evaluate, SharedSequencesInARingAreEqualUpToRounding) {
  const Model model = tiny_model();
  const EvalCorpus corpus = random_corpus(2, 700, 40);
  EvalOptions options = options_of({300, 700});
  options.stride = 100;
  options.methods = parse_methods("rope+infoscale,window:w=24,rerope:w=16", tiny_config());
  const Evaluation one = evaluate(model, corpus, options);
  options.sequence_parallel = SequenceParallel::kOn;
  options.sequence_exchange = SequenceExchange::kRing;
  for (const int ranks : {2, 3}) {
    run_as_threads(ranks, [&](Communicator& communicator) {
      const Evaluation many = evaluate(model, corpus, options, communicator);
      ASSERT_EQ(many.rows.size(), one.rows.size());
      for (std::size_t i = 0; i < one.rows.size(); ++i) {
        SCOPED_TRACE(one.rows[i].method + " " + std::to_string(one.rows[i].length));
        EXPECT_NEAR(many.rows[i].loss.value, one.rows[i].loss.value, 2e-6 * one.rows[i].loss.value);
        EXPECT_NEAR(many.rows[i].entropy, one.rows[i].entropy, 2e-6 * one.rows[i].entropy);
      }
    });
  }
}

TEST(Evaluate, SharedSequencesNeedLessMemoryEach) {
  const ModelConfig config = tiny_config();
  const std::int64_t kept = forecast_bytes(config, DType::kF32, 1, 65536, 64);
  const std::int64_t shared = forecast_bytes(config, DType::kF32, 1, 65536, 64, 4);
  EXPECT_LT(shared, kept);
  EXPECT_LT(forecast_bytes(config, DType::kF32, 1, 65536, 64, 4, SequenceExchange::kRing), shared);
  EXPECT_EQ(forecast_bytes(config, DType::kF32, 1, 65536, 64, 1), kept);
}

}  // namespace
}  // namespace gau
