// Made corpora: each document is a function of (seed, document).
#include "data/synthetic.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kClasses = 32;
constexpr std::int32_t kValues = 16;
constexpr std::int32_t kFillers = 32;
constexpr std::int32_t kSymbols = 64;
constexpr std::int32_t kTopics = 4;
/// Chance that the topic changes at a symbol.
constexpr double kTopicChange = 1.0 / 512;
/// How likely the candidates for the next symbol are.
constexpr double kCandidates[] = {0.6, 0.2, 0.15, 0.05};

/// Streams of Site::kSynthetic.
constexpr std::uint32_t kRecallStream = 0;
constexpr std::uint32_t kMarkovStream = 1;
constexpr std::uint32_t kTableStream = 2;

/// Numbers of one document, one after another.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t document, std::uint32_t stream)
      : key_{seed, static_cast<std::uint64_t>(document), Site::kSynthetic, stream} {}
  std::int32_t below(std::int64_t n) {
    return static_cast<std::int32_t>(key_.below(static_cast<std::uint64_t>(n), next_++, 0, 0));
  }
  double uniform() { return key_.uniform(next_++, 0, 0); }

 private:
  RandomKey key_;
  std::uint32_t next_ = 0;
};

struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  ///< empty, or parallel to tokens
};

/// Moves a uniform choice of `count` elements, in random order, to the front.
void choose(std::vector<std::int32_t>& items, std::int64_t count, Draws& draws) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t other = i + draws.below(static_cast<std::int64_t>(items.size()) - i);
    std::swap(items[static_cast<std::size_t>(i)], items[static_cast<std::size_t>(other)]);
  }
}

Vocabulary recall_vocabulary() {
  std::vector<std::string> names;
  for (std::int32_t c = 0; c < kClasses; ++c) {
    for (std::int32_t v = 0; v < kValues; ++v) names.push_back(fmt::format("{}:{}", c, v));
  }
  for (std::int32_t c = 0; c < kClasses; ++c) names.push_back(fmt::format("?{}", c));
  for (std::int32_t f = 0; f < kFillers; ++f) names.push_back(fmt::format("f{}", f));
  return Vocabulary::made(names, {});
}

Document recall_document(const SyntheticOptions& options, const Vocabulary& vocabulary, std::int64_t index) {
  Draws draws(options.seed, index, kRecallStream);
  const std::int32_t first_fact = vocabulary.find("0:0");
  const std::int32_t first_query = vocabulary.find("?0");
  const std::int32_t first_filler = vocabulary.find("f0");
  const std::int64_t distractors = options.dense ? options.length / 8 : 0;

  std::vector<std::int32_t> places(static_cast<std::size_t>(options.length - 1));
  std::iota(places.begin(), places.end(), 1);
  choose(places, 2 * options.facts + distractors, draws);
  std::vector<std::int32_t> classes(kClasses);
  std::iota(classes.begin(), classes.end(), 0);
  choose(classes, options.facts, draws);

  Document document;
  document.tokens.resize(static_cast<std::size_t>(options.length));
  document.labels.assign(static_cast<std::size_t>(options.length), -1);
  for (std::int32_t& token : document.tokens) token = first_filler + draws.below(kFillers);
  document.tokens[0] = vocabulary.special().cls;
  auto place = places.begin();
  for (std::int64_t i = 0; i < options.facts; ++i) {
    const std::int32_t c = classes[static_cast<std::size_t>(i)];
    const std::int32_t fact = first_fact + c * kValues + draws.below(kValues);
    document.tokens[static_cast<std::size_t>(*place++)] = fact;
    document.labels[static_cast<std::size_t>(*place)] = fact;
    document.tokens[static_cast<std::size_t>(*place++)] = first_query + c;
  }
  for (std::int64_t i = 0; i < distractors; ++i) {
    const std::int32_t c = classes[static_cast<std::size_t>(options.facts + draws.below(kClasses - options.facts))];
    document.tokens[static_cast<std::size_t>(*place++)] = first_fact + c * kValues + draws.below(kValues);
  }
  return document;
}

Vocabulary markov_vocabulary() {
  std::vector<std::string> names;
  for (std::int32_t s = 0; s < kSymbols; ++s) names.push_back(fmt::format("s{}", s));
  return Vocabulary::made(names, {});
}

Document markov_document(const SyntheticOptions& options, const Vocabulary& vocabulary, std::int64_t index) {
  Draws draws(options.seed, index, kMarkovStream);
  // The table is the language; it is the same for every seed, so that corpora made apart can be trained and tested on.
  const RandomKey table{0, 0, Site::kSynthetic, kTableStream};
  const std::int32_t first_symbol = vocabulary.find("s0");
  Document document;
  std::int32_t topic = draws.below(kTopics);
  std::int32_t last = draws.below(kSymbols);
  std::int32_t before_last = draws.below(kSymbols);
  for (std::int64_t i = 0; i < options.length; ++i) {
    if (draws.uniform() < kTopicChange) topic = draws.below(kTopics);
    double left = draws.uniform();
    std::uint32_t candidate = 0;
    while (candidate + 1 < std::size(kCandidates) && left >= kCandidates[candidate]) left -= kCandidates[candidate++];
    // The symbol before the last one decides which of the two likeliest candidates is the likelier.
    if (candidate < 2 && before_last % 2 == 1) candidate = 1 - candidate;
    const auto next = static_cast<std::int32_t>(
        table.below(kSymbols, static_cast<std::uint32_t>(topic), static_cast<std::uint32_t>(last), candidate));
    before_last = std::exchange(last, next);
    document.tokens.push_back(first_symbol + next);
  }
  return document;
}

SyntheticOptions completed(SyntheticOptions options) {
  const bool recall = options.kind == SyntheticKind::kRecall;
  if (options.length == 0) options.length = recall ? 64 : 4096;
  if (options.documents == 0) options.documents = recall ? 20000 : 512;
  check(!options.output.empty(), ExitCode::kUsage, "no output was named; give -o corpus.h5");
  check(options.length >= 1 && options.documents >= 1, ExitCode::kUsage, "--length and --documents must be at least 1");
  if (!recall) {
    check(!options.dense, ExitCode::kUsage, "--dense belongs to --synthetic recall");
    return options;
  }
  check(options.facts >= 1 && options.facts < kClasses, ExitCode::kUsage, "--facts {}: must be 1 to {}", options.facts,
        kClasses - 1);
  const std::int64_t needed = 1 + 2 * options.facts + (options.dense ? options.length / 8 : 0);
  check(options.length >= needed, ExitCode::kUsage, "--length {}: {} facts and their queries need {} tokens", options.length,
        options.facts, needed);
  return options;
}

std::string provenance(const SyntheticOptions& options) {
  Json json{{"source", options.kind == SyntheticKind::kRecall ? "recall" : "markov"},
            {"length", options.length},
            {"documents", options.documents}};
  if (options.kind == SyntheticKind::kRecall) {
    json["facts"] = options.facts;
    json["dense"] = options.dense;
  }
  json["valid"] = options.fractions.valid;
  json["test"] = options.fractions.test;
  json["seed"] = options.seed;
  return json.dump();
}

}  // namespace

SyntheticKind parse_synthetic(const std::string& name) {
  if (name == "recall") return SyntheticKind::kRecall;
  if (name == "markov") return SyntheticKind::kMarkov;
  fail(ExitCode::kUsage, "--synthetic {}: unknown; known: recall, markov", name);
}

PrepareReport make_synthetic(const SyntheticOptions& wanted) {
  const SyntheticOptions options = completed(wanted);
  const bool recall = options.kind == SyntheticKind::kRecall;
  const NameTokenizer tokenizer(recall ? recall_vocabulary() : markov_vocabulary());
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const std::vector<Split> splits = assign_splits(options.documents, options.fractions, options.seed);

  CorpusWriter writer(options.output, tokenizer, recall);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocabulary.size()), 0);
  PrepareReport report;
  report.documents = options.documents;
  report.vocab_size = vocabulary.size();
  for (std::int64_t index = 0; index < options.documents; ++index) {
    const Document document =
        recall ? recall_document(options, vocabulary, index) : markov_document(options, vocabulary, index);
    for (const std::int32_t id : document.tokens) ++counts[static_cast<std::size_t>(id)];
    SplitReport& split = report.splits[static_cast<std::size_t>(splits[static_cast<std::size_t>(index)])];
    ++split.documents;
    split.tokens += options.length;
    report.tokens += options.length;
    writer.add(document.tokens, document.labels);
  }
  report.unigram_entropy = entropy_of_counts(counts);
  report.digest = writer.publish(splits, "{}", provenance(options));
  return report;
}

}  // namespace gau
