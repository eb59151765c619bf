// Figures of a training run: metrics.jsonl for programs, progress for people.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gau {

/// exp(loss), `loss` in nats; infinity when that is too large for a double, NaN for NaN.
double perplexity(double loss);

/// Loss and accuracy over the validation split.
struct ValidationMetrics {
  double loss = 0;
  double accuracy = 0;
  std::int64_t masked_tokens = 0;
};

struct StepMetrics {
  std::int64_t step = 0;  ///< optimizer steps done, counted from 1
  double loss = 0;        ///< nats a masked token
  double accuracy = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  std::int64_t masked_tokens = 0;
  double tokens_per_second = 0;
  double seconds = 0;                           ///< that the step took
  std::optional<double> waited;                 ///< of them, for gradients of other ranks after this one's were done
  std::optional<double> mfu;                    ///< share of the machine's bare matrix products, when it is known
  bool skipped = false;                         ///< no parameter was changed: no masked token, or gradients that are not finite
  std::optional<ValidationMetrics> validation;  ///< made after this step
  std::vector<double> entropy;                  ///< mean row entropy of attention by layer, nats; empty: not measured
};

/// One JSON object without a line end. Numbers that are not finite become null, so that the line is always valid JSON.
std::string to_json_line(const StepMetrics& metrics);

/// metrics.jsonl of a run, one line a step.
class MetricsFile {
 public:
  /// Continues `path` after `step`: lines of later steps, which a resumed run makes again, and a line cut short are removed.
  /// step = 0 starts an empty file. Throws Error(kIo) with path and errno text.
  MetricsFile(const std::string& path, std::int64_t step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Appends the line and hands it to the system. Lines that cannot be written now, since the disk is full, wait for the next
  /// call; the first time is warned of.
  void write(const StepMetrics& metrics);
  /// Throws Error(kIo) when lines are still waiting.
  void finish();

 private:
  bool flush();

  std::string path_;
  std::string waiting_;  // not yet with the system
  bool warned_ = false;
  int file_ = -1;
};

/// "step 120/1000, 2m05s left: loss 3.4120 perplexity 30.3 accuracy 0.2810 lr 0.0018 norm 0.92 21000 tokens/s"; what matters
/// most comes first, since a narrow terminal cuts the end.
std::string progress_line(const StepMetrics& metrics, std::int64_t steps, double seconds_left);

/// "45s", "2m05s", "3h07m"
std::string duration_text(double seconds);

/// Shows progress on standard error: one line that is updated on a terminal, a plain line every `every` steps elsewhere.
class Progress {
 public:
  Progress(std::int64_t steps, std::int64_t every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const StepMetrics& metrics);
  /// Clears the updating line, so that something else can be printed.
  void pause();

 private:
  double seconds_left(const StepMetrics& metrics);

  std::int64_t steps_;
  std::int64_t every_;
  bool interactive_;
  bool visible_ = false;
  std::deque<double> recent_;  // seconds of the latest steps
};

}  // namespace gau
