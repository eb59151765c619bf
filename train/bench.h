// Benchmarks of the workloads W1, W2, W3 (a training step) and E1, E2 (an evaluation forward pass), each beside the bare matrix
// products of the same work, timed in the same process in alternation: a share, which noise of the machine leaves alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/dtype.h"
#include "layers/model.h"

namespace gau {

struct BenchPart {
  std::string name;  ///< kernel
  double seconds = 0;
};

struct BenchResult {
  std::string workload;
  std::string attention;  ///< "dot", "cosine 16", …
  std::string dtype;
  std::int64_t length = 0;
  std::int64_t tokens = 0;       ///< of a step, or of a pass
  double step_seconds = 0;       ///< median
  double gemm_seconds = 0;       ///< median of the bare products
  double operations = 0;         ///< of the products
  double skipped_share = 0;      ///< of the query-key pairs in attention, those whose value products were left out
  double unskipped_seconds = 0;  ///< E: the pass with nothing skipped; 0: not measured
  double attention_seconds = 0;  ///< E: of it, attention
  double unskipped_attention_seconds = 0;
  std::int64_t peak_rss_bytes = 0;
  std::vector<BenchPart> parts;  ///< one profiled run, largest first
};

struct BenchOptions {
  std::string workload = "W2";
  std::vector<std::int64_t> lengths;  ///< E1, E2: empty: those of the workload
  DType dtype = DType::kF32;
  int repeats = 5;                 ///< timed runs, after one to warm up
  std::string scratch;             ///< directory for a corpus of random tokens (W)
  const Model* model = nullptr;    ///< E: this model in the place of a random one
  std::vector<std::int32_t> text;  ///< E: tokens to read, repeated from the start when they end; empty: random ones
};

/// Names of the workloads.
std::vector<std::string> workload_names();

/// Runs one workload; `done` is told each result as it comes. Throws Error(kUsage) for an unknown name.
std::vector<BenchResult> run_bench(const BenchOptions& options, const std::function<void(const BenchResult&)>& done);

}  // namespace gau
