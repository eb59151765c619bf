#include "train/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "autograd/variable.h"
#include "data/corpus.h"
#include "framework/attention_counters.h"
#include "framework/error.h"
#include "framework/kernel_timer.h"
#include "framework/product_log.h"
#include "framework/weights_scope.h"
#include "train/precision.h"
#include "train/trainer.h"

namespace gau {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Peak resident memory of this process since the last reset, where Linux allows one.
void reset_peak_rss() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::int64_t peak_rss() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %lld kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

struct Workload {
  const char* name;
  bool training;
  ModelConfig model;
  std::int64_t batch;
  std::int64_t length;
  double dropout;
};

ModelConfig sizes(std::int64_t layers, std::int64_t hidden, std::int64_t intermediate, std::int64_t key,
                  std::int64_t vocabulary) {
  ModelConfig config;
  config.layers = layers;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.key_size = key;
  config.vocab_size = vocabulary;
  config.attention.train_length = 64;
  return config;
}

std::vector<Workload> workloads() {
  const ModelConfig large = sizes(6, 768, 1536, 128, 12000), small = sizes(4, 256, 512, 64, 4096);
  return {{"W1", true, large, 128, 64, 0.1},
          {"W2", true, small, 64, 64, 0.1},
          {"W3", true, small, 8, 512, 0.1},
          {"E1", false, small, 1, 0, 0},
          {"E2", false, large, 1, 0, 0}};
}

std::int32_t random_token(std::uint64_t index, std::int64_t vocabulary) {
  const RandomKey key{7, 0, Site::kSynthetic, 0};
  return static_cast<std::int32_t>(
      5 + key.below(static_cast<std::uint64_t>(vocabulary) - 5, static_cast<std::uint32_t>(index), 0, 0));
}

// A corpus of random tokens, a document of eight windows each.
std::string random_corpus(const BenchOptions& options, const Workload& workload) {
  std::vector<std::string> names;
  for (std::int64_t i = 5; i < workload.model.vocab_size; ++i) names.push_back(fmt::format("w{}", i));
  const auto tokenizer = make_tokenizer("name", Vocabulary::made(names, {}));
  const std::string path = (std::filesystem::path(options.scratch) / "random.h5").string();
  CorpusWriter writer(path, *tokenizer, false);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(8 * workload.length));
  const std::int64_t documents = std::max<std::int64_t>(64, 2 * workload.batch);
  std::uint64_t index = 0;
  for (std::int64_t d = 0; d < documents; ++d) {
    for (std::int32_t& token : tokens) token = random_token(index++, workload.model.vocab_size);
    writer.add(tokens);
  }
  writer.publish(std::vector<Split>(static_cast<std::size_t>(documents), Split::kTrain), "{}", "{}");
  return path;
}

// One way to do the work that is measured.
struct Contender {
  std::function<void()> work;
  BenchResult& result;
};

// The median of each part over profiled runs; what no kernel took is "everything else".
class PartTimes {
 public:
  void add(const KernelProfile& profile, double whole) {
    double inside = 0;
    for (const auto& [name, seconds] : profile.times()) {
      seconds_[name].push_back(seconds);
      inside += seconds;
    }
    seconds_["everything else"].push_back(whole - inside);
  }
  std::vector<BenchPart> medians() const {
    std::vector<BenchPart> parts;
    for (const auto& [name, seconds] : seconds_) parts.push_back({name, median(seconds)});
    std::sort(parts.begin(), parts.end(), [](const BenchPart& a, const BenchPart& b) { return a.seconds > b.seconds; });
    return parts;
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
};

// Times every contender and the bare products of the first one in turn, so that what else the machine does falls on all alike.
void measure(const std::vector<Contender>& contenders, int repeats) {
  std::vector<LoggedProduct> products;
  for (const Contender& contender : contenders) {
    const ProductLog log;
    reset_attention_counters();
    contender.work();  // warms up too
    if (&contender == &contenders.front()) products = log.products();
    contender.result.skipped_share = attention_counters().skipped_share();
  }
  ProductReplay replay(std::move(products));
  replay.run();
  std::vector<double> bare;
  std::vector<std::vector<double>> steps(contenders.size());
  std::vector<PartTimes> parts(contenders.size());
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      const KernelProfile profile;
      steps[c].push_back(seconds_of(contenders[c].work));
      parts[c].add(profile, steps[c].back());
    }
    bare.push_back(seconds_of([&] { replay.run(); }));
  }
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    BenchResult& result = contenders[c].result;
    result.step_seconds = median(steps[c]);
    result.parts = parts[c].medians();
    result.gemm_seconds = median(bare);
    result.operations = replay.operations();
  }
}

double part_seconds(const BenchResult& result, const std::string& name) {
  for (const BenchPart& part : result.parts) {
    if (part.name == name) return part.seconds;
  }
  return 0;
}

BenchResult bench_training(const BenchOptions& options, const Workload& workload) {
  const std::string path = random_corpus(options, workload);
  const Corpus corpus(path);
  Config config;
  config.model = workload.model;
  config.model.dropout = workload.dropout;
  config.model.attention_dropout = workload.dropout;
  config.data.length = workload.length;
  config.data.batch = workload.batch;
  config.optim.steps = 1 << 20;
  config.train.dtype = options.dtype;
  config.model.attention.train_length = workload.length;
  Trainer trainer(config, corpus);
  trainer.model().initialize(1);
  BenchResult result;
  result.workload = workload.name;
  result.attention = "dot";
  result.dtype = name_of(options.dtype);
  result.length = workload.length;
  result.tokens = workload.batch * workload.length;
  std::int64_t step = 0;
  reset_peak_rss();
  trainer.step(step++);
  result.peak_rss_bytes = peak_rss();
  measure({{[&] { trainer.step(step++); }, result}}, options.repeats);
  return result;
}

constexpr std::int64_t kTargets = 64;
// Beyond it a pass that skips nothing takes minutes.
constexpr std::int64_t kLongestUnskipped = 16384;

ModelInputs bench_window(const BenchOptions& options, std::int64_t length, std::int64_t vocabulary) {
  ModelInputs inputs;
  inputs.ids = Tensor::empty({1, length}, DType::kI32);
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    inputs.ids.data<std::int32_t>()[i] =
        options.text.empty() ? random_token(at, vocabulary) : options.text[at % options.text.size()];
  }
  for (std::int64_t t = 0; t < kTargets; ++t) rows.push_back(static_cast<std::int32_t>(t * length / kTargets));
  inputs.rows = Tensor::from(rows, {kTargets});
  return inputs;
}

BenchResult bench_pass(const BenchOptions& options, const std::string& name, const Model& model, std::int64_t length) {
  const AttentionConfig& attention = model.config().attention;
  BenchResult result;
  result.workload = name;
  result.attention =
      attention.kind == AttentionKind::kCosine ? fmt::format("cosine {:g}", attention.scale) : name_of(attention.kind);
  result.dtype = name_of(options.dtype);
  result.length = length;
  result.tokens = length;
  const ModelInputs inputs = bench_window(options, length, model.config().vocab_size);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>(kTargets, 5), {kTargets});
  Planner planner(model.config(), Method{}, model.dtype());
  const NoGrad no_grad;
  const auto pass = [&] { model.masked_loss({}, inputs, labels, planner); };
  reset_peak_rss();
  pass();
  result.peak_rss_bytes = peak_rss();
  if (length > kLongestUnskipped) {
    measure({{pass, result}}, options.repeats);
    result.attention_seconds = part_seconds(result, "attention");
    return result;
  }
  BenchResult unskipped;
  const auto pass_with = [&](double skip) {
    planner.set_skip(skip);
    pass();
  };
  // The products are those of the pass that computes all of them.
  measure({{[&] { pass_with(0); }, unskipped}, {[&] { pass_with(AttentionPlan::default_skip(model.dtype())); }, result}},
          options.repeats);
  result.attention_seconds = part_seconds(result, "attention");
  result.unskipped_seconds = unskipped.step_seconds;
  result.unskipped_attention_seconds = part_seconds(unskipped, "attention");
  return result;
}

std::vector<BenchResult> bench_evaluation(const BenchOptions& options, const Workload& workload,
                                          const std::function<void(const BenchResult&)>& done) {
  const std::vector<std::int64_t> lengths =
      options.lengths.empty() ? std::vector<std::int64_t>{512, 1024, 4096, 8192, 16384} : options.lengths;
  std::vector<BenchResult> results;
  const auto run = [&](const Model& model) {
    const WeightsScope weights(model.parameters().values());
    for (const std::int64_t length : lengths) {
      results.push_back(bench_pass(options, workload.name, model, length));
      done(results.back());
    }
  };
  if (options.model) {
    run(*options.model);
    return results;
  }
  for (const double scale : {0.0, 16.0, 128.0}) {
    ModelConfig config = workload.model;
    if (scale > 0) config.attention.kind = AttentionKind::kCosine;
    if (scale > 0) config.attention.scale = scale;
    Model model(config, storage_type(options.dtype));
    model.initialize(1);
    run(model);
  }
  return results;
}

}  // namespace

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const Workload& workload : workloads()) names.emplace_back(workload.name);
  return names;
}

std::vector<BenchResult> run_bench(const BenchOptions& options, const std::function<void(const BenchResult&)>& done) {
  const Precision precision(options.dtype);
  for (const Workload& workload : workloads()) {
    if (options.workload != workload.name) continue;
    if (!workload.training) return bench_evaluation(options, workload, done);
    check(!options.model, ExitCode::kUsage, "bench: --model goes with E1 and E2; {} trains a model of its own", workload.name);
    const BenchResult result = bench_training(options, workload);
    done(result);
    return {result};
  }
  fail(ExitCode::kUsage, "bench: no workload \"{}\"; known: {}", options.workload, fmt::join(workload_names(), ", "));
}

}  // namespace gau
