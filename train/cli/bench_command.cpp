// gau bench: speed of the standard workloads beside their bare matrix products.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/corpus.h"
#include "framework/error.h"
#include "framework/log.h"
#include "framework/parallel.h"
#include "train/bench.h"
#include "train/cli/commands.h"
#include "train/cli/validators.h"
#include "train/model_io.h"
#include "train/precision.h"

namespace gau::cli {

namespace {

struct Options {
  std::string workload = "W2";
  std::string model;
  std::string data;
  std::vector<std::int64_t> lengths;
  int threads = 0;
  int repeats = 5;
  std::string dtype = "f32";
  bool json = false;
  bool quiet = false;
};

// A directory that is gone afterwards, whatever happens.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "gau-bench-XXXXXX").string();
    check(mkdtemp(path_.data()) != nullptr, ExitCode::kIo, "{}: cannot be made", path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

nlohmann::ordered_json to_json(const BenchResult& result) {
  nlohmann::ordered_json json{{"workload", result.workload},
                              {"attention", result.attention},
                              {"dtype", result.dtype},
                              {"threads", threads()},
                              {"length", result.length},
                              {"tokens", result.tokens},
                              {"step_seconds", result.step_seconds},
                              {"tokens_per_second", static_cast<double>(result.tokens) / result.step_seconds},
                              {"gemm_seconds", result.gemm_seconds},
                              {"gemm_share", result.gemm_seconds / result.step_seconds},
                              {"gemm_gflops", result.operations / result.gemm_seconds / 1e9},
                              {"skipped_share", result.skipped_share},
                              {"peak_rss_bytes", result.peak_rss_bytes}};
  if (result.attention_seconds > 0) json["attention_seconds"] = result.attention_seconds;
  if (result.unskipped_seconds > 0) {
    json["unskipped_seconds"] = result.unskipped_seconds;
    json["unskipped_attention_seconds"] = result.unskipped_attention_seconds;
  }
  for (const BenchPart& part : result.parts) json["parts"].push_back({{"name", part.name}, {"seconds", part.seconds}});
  return json;
}

void print(const BenchResult& result, bool quiet) {
  fmt::print(
      "{} {} {} length {}: {:.4f} s, {:.0f} tokens/s, {:.2f} x its bare products ({:.4f} s, {:.0f} GFLOP/s), peak {:.2f} GiB\n",
      result.workload, result.attention, result.dtype, result.length, result.step_seconds,
      static_cast<double>(result.tokens) / result.step_seconds, result.step_seconds / result.gemm_seconds, result.gemm_seconds,
      result.operations / result.gemm_seconds / 1e9, static_cast<double>(result.peak_rss_bytes) / (1 << 30));
  if (result.unskipped_seconds > 0) {
    fmt::print("  skipped {:.1f} % of the pairs: {:.2f} x as fast as without; attention alone {:.2f} x\n",
               100 * result.skipped_share, result.unskipped_seconds / result.step_seconds,
               result.unskipped_attention_seconds / result.attention_seconds);
  }
  if (quiet) return;
  double whole = 0;
  for (const BenchPart& part : result.parts) whole += part.seconds;
  for (const BenchPart& part : result.parts) {
    if (part.seconds < 0.005 * whole) continue;
    fmt::print("  {:<28} {:>9.4f} s {:>5.1f} %\n", part.name, part.seconds, 100 * part.seconds / whole);
  }
}

// The longest document of the corpus: one text, as long as there is.
std::vector<std::int32_t> longest_text(const std::string& path) {
  const Corpus corpus(path);
  std::int64_t longest = 0;
  for (std::int64_t d = 1; d < corpus.documents(); ++d) {
    if (corpus.document_length(d) > corpus.document_length(longest)) longest = d;
  }
  return corpus.tokens(longest, 0, corpus.document_length(longest));
}

int bench(const Options& options) {
  log::set_quiet(options.quiet);
  if (options.threads > 0) set_threads(options.threads);
  const ScratchDirectory scratch;
  BenchOptions request;
  request.workload = options.workload;
  request.lengths = options.lengths;
  request.dtype = parse_dtype(options.dtype);
  request.repeats = options.repeats;
  request.scratch = scratch.path();
  std::unique_ptr<LoadedModel> loaded;
  if (!options.model.empty()) {
    loaded = std::make_unique<LoadedModel>(load_model(resolve_model_path(options.model), storage_type(request.dtype)));
    request.model = &loaded->model;
    if (!options.data.empty()) request.text = longest_text(options.data);
  }
  check(options.data.empty() || !options.model.empty(), ExitCode::kUsage, "bench: --data is read by a --model; give one");
  const std::vector<BenchResult> results = run_bench(request, [&](const BenchResult& result) {
    if (!options.json) print(result, options.quiet);
  });
  if (!options.json) return static_cast<int>(ExitCode::kDone);
  if (results.size() == 1) {
    fmt::print("{}\n", to_json(results.front()).dump());
  } else {
    nlohmann::ordered_json all{{"workload", options.workload}, {"dtype", options.dtype}, {"threads", threads()}};
    for (const BenchResult& result : results) all["results"].push_back(to_json(result));
    fmt::print("{}\n", all.dump());
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Time the standard workloads beside their bare matrix products");
  command->add_option("--workload", options->workload, "W1, W2, W3 (training steps), E1 or E2 (evaluation passes)")
      ->capture_default_str();
  command->add_option("--model", options->model, "E1, E2: a trained model in the place of a random one");
  command->add_option("--data", options->data,
                      "E1, E2: a corpus whose longest document the model reads, instead of random tokens");
  command->add_option("--lengths", options->lengths, "E1, E2: lengths of the window")->delimiter(',')->check(at_least(64));
  command->add_option("--threads", options->threads, "Threads (default: the processors of this process)")->check(at_least(1));
  command->add_option("--repeats", options->repeats, "Timed runs, of which the median counts")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "f32, bf16 or f64")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No split by kernel");
  command->footer(
      "Examples:\n"
      "  gau bench --workload W1 --json\n"
      "  gau bench --workload W1 --dtype bf16\n"
      "  gau bench --workload E2 --lengths 4096,16384\n"
      "  gau bench --workload E1 --model runs/cosine --data corpus.h5");
  command->callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace gau::cli
