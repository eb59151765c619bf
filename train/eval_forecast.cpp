// Memory and time of an evaluation. The counts follow layers/gau_layer.h; the memory forecast is an upper bound, checked
// against the allocator's peak by a test.
#include "train/eval_forecast.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "framework/attention_block_rows.h"
#include "framework/error.h"
#include "framework/log.h"
#include "train/evaluator.h"
#include "train/metrics.h"

namespace gau {
namespace {

constexpr auto kBetweenUpdates = std::chrono::milliseconds(500);
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

double window_operations(const ModelConfig& config, std::int64_t length) {
  const auto l = static_cast<double>(length);
  const auto h = static_cast<double>(config.hidden);
  const auto e = static_cast<double>(config.intermediate);
  const auto d = static_cast<double>(config.key_size);
  return static_cast<double>(config.layers) * (l * h * (3 * e + d) + l * l * (e + d));
}

std::int64_t forecast_bytes(const ModelConfig& config, DType dtype, std::int64_t batch, std::int64_t length, std::int64_t rows,
                            int ranks, SequenceExchange exchange) {
  // Values and gradients of the parameters, and in f32 the copies that products keep. In a layer at once: input, residual and
  // output (H); the joint projection and its parts, values, gate and their product (E); queries and keys of three regions (D).
  // Attention holds two blocks of logits, of 128 rows or of 2^20 elements. A rank that shares sequences holds its own rows, and
  // of one layer all keys and values, these twice; in a ring two parts of them, the values of one twice, another part's result,
  // and for the entropy all keys, also in double.
  constexpr std::int64_t kRest = std::int64_t{16} << 20;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t token = 3 * config.hidden + 5 * config.intermediate + 8 * config.key_size;
  const std::int64_t row_blocks = (length + kAttentionBlockRows - 1) / kAttentionBlockRows;
  const std::int64_t own = ranks == 1 ? length : (row_blocks + ranks - 1) / ranks * kAttentionBlockRows;
  const bool ring = ranks > 1 && exchange == SequenceExchange::kRing;
  std::int64_t others = 0;
  if (ring) {
    others = own * (4 * config.intermediate + 6 * config.key_size) + length * 9 * config.key_size;
  } else if (ranks > 1) {
    others = length * (2 * config.intermediate + 3 * config.key_size);
  }
  const std::int64_t blocks = 2 * std::max<std::int64_t>(1 << 20, 128 * (ring ? own : length));
  const std::int64_t logits = 3 * (rows + 32) * config.vocab_size;
  const std::int64_t buffers = dtype == DType::kF32 ? 3 : 2;
  return element * (buffers * config.parameter_count() + batch * (own * token + others) + blocks + logits) + kRest;
}

std::optional<std::int64_t> available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

std::string bytes_text(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1000 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

WorkClock::WorkClock(double total)
    : total_(total),
      interactive_(log::interactive() && !log::quiet()),
      begin_(std::chrono::steady_clock::now()),
      shown_(begin_) {}

std::string WorkClock::left() const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (done_ <= 0) return "";
  return duration_text(elapsed * std::max(0.0, total_ - done_) / done_) + " left";
}

void WorkClock::advance(double work, const std::string& name) {
  done_ += work;
  const auto now = std::chrono::steady_clock::now();
  if (!interactive_ || now - shown_ < kBetweenUpdates) return;
  shown_ = now;
  fmt::print(stderr, "{}{:3.0f} %  {}  {}", kClearLine, 100 * done_ / total_, name, left());
  std::fflush(stderr);
}

void WorkClock::row_done(const std::string& line) {
  finish();
  log::info("{}{}", line, done_ < total_ * (1 - 1e-9) ? ", " + left() : "");
}

void WorkClock::finish() {
  if (!interactive_) return;
  std::fputs(kClearLine, stderr);
  std::fflush(stderr);
}

}  // namespace gau
