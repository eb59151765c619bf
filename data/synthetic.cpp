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
constexpr std::int64_t kLongest = 1 << 24;
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

/// Where a document has what, besides fillers.
struct RecallPlaces {
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;  ///< fact, query
  std::vector<std::int32_t> distractors;
};

std::int64_t distractors_of(const SyntheticOptions& options, std::int64_t length) { return options.dense ? length / 8 : 0; }

RecallPlaces uniform_places(const SyntheticOptions& options, std::int64_t length, Draws& draws) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(length - 1));
  std::iota(places.begin(), places.end(), 1);
  const std::int64_t distractors = distractors_of(options, length);
  choose(places, 2 * options.facts + distractors, draws);
  RecallPlaces out;
  auto next = places.begin();
  for (std::int64_t i = 0; i < options.facts; ++i, next += 2) out.pairs.emplace_back(next[0], next[1]);
  out.distractors.assign(next, next + distractors);
  return out;
}

/// A bucket of distances, [first, last].
struct DistanceBucket {
  std::int32_t first, last;
};

/// Those that two places of a document behind its [CLS] can be apart.
std::vector<DistanceBucket> buckets_of(const SyntheticOptions& options, std::int64_t length) {
  std::vector<DistanceBucket> buckets;
  std::int64_t before = 0;
  for (const std::int64_t edge : options.distances) {
    const std::int64_t last = std::min(edge, length - 2);
    if (last > before) buckets.push_back({static_cast<std::int32_t>(before + 1), static_cast<std::int32_t>(last)});
    before = edge;
  }
  return buckets;
}

/// A free pair of places at a distance of the bucket, fact first, in random order of the two.
std::pair<std::int32_t, std::int32_t> place_pair(const DistanceBucket& bucket, std::vector<bool>& taken, Draws& draws) {
  constexpr int kAttempts = 10000;
  const auto length = static_cast<std::int32_t>(taken.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::int32_t distance = bucket.first + draws.below(bucket.last - bucket.first + 1);
    std::int32_t fact = 1 + draws.below(length - 1 - distance);
    std::int32_t query = fact + distance;
    if (draws.below(2) == 1) std::swap(fact, query);
    if (taken[static_cast<std::size_t>(fact)] || taken[static_cast<std::size_t>(query)]) continue;
    taken[static_cast<std::size_t>(fact)] = taken[static_cast<std::size_t>(query)] = true;
    return {fact, query};
  }
  fail(ExitCode::kUsage,
       "--distances: no room for a fact {} to {} tokens from its query in a document of {}; give fewer --facts", bucket.first,
       bucket.last, length);
}

/// `turn`: how many pairs were placed in earlier documents of this length.
RecallPlaces bucketed_places(const SyntheticOptions& options, std::int64_t length, std::int64_t turn, Draws& draws) {
  const std::vector<DistanceBucket> buckets = buckets_of(options, length);
  std::vector<bool> taken(static_cast<std::size_t>(length));
  taken[0] = true;
  RecallPlaces out;
  for (std::int64_t i = 0; i < options.facts; ++i) {
    const auto bucket = static_cast<std::size_t>(turn + i) % buckets.size();
    out.pairs.push_back(place_pair(buckets[bucket], taken, draws));
  }
  for (std::int32_t place = 1; place < length; ++place) {
    if (!taken[static_cast<std::size_t>(place)]) out.distractors.push_back(place);
  }
  const std::int64_t distractors = distractors_of(options, length);
  choose(out.distractors, distractors, draws);
  out.distractors.resize(static_cast<std::size_t>(distractors));
  return out;
}

Document recall_document(const SyntheticOptions& options, const Vocabulary& vocabulary, std::int64_t index) {
  Draws draws(options.seed, index, kRecallStream);
  const auto lengths = static_cast<std::int64_t>(options.lengths.size());
  const std::int64_t length = options.lengths[static_cast<std::size_t>(index % lengths)];
  const RecallPlaces places = options.distances.empty()
                                  ? uniform_places(options, length, draws)
                                  : bucketed_places(options, length, index / lengths * options.facts, draws);
  std::vector<std::int32_t> classes(kClasses);
  std::iota(classes.begin(), classes.end(), 0);
  choose(classes, options.facts, draws);

  const std::int32_t first_fact = vocabulary.find("0:0");
  const std::int32_t first_query = vocabulary.find("?0");
  const std::int32_t first_filler = vocabulary.find("f0");
  const auto any_fact = [&](std::int32_t c) { return first_fact + c * kValues + draws.below(kValues); };
  Document document;
  document.tokens.resize(static_cast<std::size_t>(length));
  document.labels.assign(static_cast<std::size_t>(length), -1);
  for (std::int32_t& token : document.tokens) token = first_filler + draws.below(kFillers);
  document.tokens[0] = vocabulary.special().cls;
  for (std::size_t i = 0; i < places.pairs.size(); ++i) {
    const auto [fact, query] = places.pairs[i];
    document.tokens[static_cast<std::size_t>(fact)] = any_fact(classes[i]);
    document.labels[static_cast<std::size_t>(query)] = document.tokens[static_cast<std::size_t>(fact)];
    document.tokens[static_cast<std::size_t>(query)] = first_query + classes[i];
  }
  for (const std::int32_t place : places.distractors) {
    const auto unasked = options.facts + draws.below(kClasses - options.facts);
    document.tokens[static_cast<std::size_t>(place)] = any_fact(classes[static_cast<std::size_t>(unasked)]);
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
  const std::int64_t length = options.lengths[static_cast<std::size_t>(index) % options.lengths.size()];
  for (std::int64_t i = 0; i < length; ++i) {
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

void check_recall(const SyntheticOptions& options) {
  check(options.facts >= 1 && options.facts < kClasses, ExitCode::kUsage, "--facts {}: must be 1 to {}", options.facts,
        kClasses - 1);
  for (const std::int64_t length : options.lengths) {
    const std::int64_t needed = 1 + 2 * options.facts + distractors_of(options, length);
    check(length >= needed, ExitCode::kUsage, "--length {}: {} facts and their queries need {} tokens", length, options.facts,
          needed);
  }
  std::int64_t before = 0;
  for (const std::int64_t edge : options.distances) {
    check(edge > before, ExitCode::kUsage, "--distances: {} after {}; they must be above 0 and rise", edge, before);
    before = edge;
  }
}

SyntheticOptions completed(SyntheticOptions options) {
  const bool recall = options.kind == SyntheticKind::kRecall;
  if (options.lengths.empty()) options.lengths = {recall ? 64 : 4096};
  if (options.documents == 0) options.documents = recall ? 20000 : 512;
  check(!options.output.empty(), ExitCode::kUsage, "no output was named; give -o corpus.h5");
  const std::int64_t shortest = *std::min_element(options.lengths.begin(), options.lengths.end());
  check(shortest >= 1 && options.documents >= 1, ExitCode::kUsage, "--length and --documents must be at least 1");
  check(*std::max_element(options.lengths.begin(), options.lengths.end()) <= kLongest, ExitCode::kUsage,
        "--length: documents have at most {} tokens", kLongest);
  if (recall) {
    check_recall(options);
  } else {
    check(!options.dense && options.distances.empty(), ExitCode::kUsage, "--{} belongs to --synthetic recall",
          options.dense ? "dense" : "distances");
  }
  return options;
}

std::string provenance(const SyntheticOptions& options) {
  Json json{{"source", options.kind == SyntheticKind::kRecall ? "recall" : "markov"},
            {"lengths", options.lengths},
            {"documents", options.documents}};
  if (options.kind == SyntheticKind::kRecall) {
    json["facts"] = options.facts;
    json["dense"] = options.dense;
    json["distances"] = options.distances;
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
    const auto length = static_cast<std::int64_t>(document.tokens.size());
    split.tokens += length;
    report.tokens += length;
    writer.add(document.tokens, document.labels);
  }
  report.unigram_entropy = entropy_of_counts(counts);
  report.digest = writer.publish(splits, "{}", provenance(options));
  return report;
}

}  // namespace gau
