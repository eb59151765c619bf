// What an evaluation will cost: memory before it starts, time left while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "layers/model_config.h"

namespace gau {

/// Multiplications of a forward pass over one window: the products with weights, and attention.
double window_operations(const ModelConfig& config, std::int64_t length);

/// Memory that this machine could still give, in bytes (MemAvailable of Linux); nothing when it does not say.
std::optional<std::int64_t> available_memory();

/// "1.5 GiB"
std::string bytes_text(std::int64_t bytes);

/// Progress and the time left: on a terminal one line that is rewritten, else a line a row.
class WorkClock {
 public:
  explicit WorkClock(double total);
  /// `work` more is done, in the row called `name`.
  void advance(double work, const std::string& name);
  /// A row is complete; `line` says what it found.
  void row_done(const std::string& line);
  /// Clears the rewritten line.
  void finish();

 private:
  std::string left() const;

  double total_;
  double done_ = 0;
  bool interactive_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace gau
