// Lines of metrics and of progress. A line is handed to the system at once: a killed run keeps what it said.
#include "train/metrics.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/log.h"
#include "framework/read_file.h"

namespace gau {
namespace {

constexpr std::size_t kRecentSteps = 50;

/// The whole lines of earlier steps, up to `step`. Steps ascend, so the first later, damaged or unfinished line ends them.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  if (step == 0 || !std::filesystem::exists(path)) return "";
  std::ifstream file = open_file(path, "metrics");
  std::string kept, line;
  while (std::getline(file, line) && !file.eof()) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer() ||
        object["step"].get<std::int64_t>() > step)
      break;
    kept += line + "\n";
  }
  check(!file.bad(), ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  return kept;
}

/// Columns of the terminal, so that the updating line never wraps.
std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79;
}

}  // namespace

double perplexity(double loss) { return std::exp(loss); }

std::string to_json_line(const StepMetrics& metrics) {
  nlohmann::ordered_json line;  // writes null for numbers that are not finite
  line["step"] = metrics.step;
  line["loss"] = metrics.loss;
  line["perplexity"] = perplexity(metrics.loss);
  line["accuracy"] = metrics.accuracy;
  line["lr"] = metrics.learning_rate;
  line["grad_norm"] = metrics.gradient_norm;
  line["masked_tokens"] = metrics.masked_tokens;
  line["tokens_per_second"] = metrics.tokens_per_second;
  line["mfu"] = metrics.mfu.value_or(std::numeric_limits<double>::quiet_NaN());
  line["seconds"] = metrics.seconds;
  if (metrics.waited) line["waited"] = *metrics.waited;
  if (metrics.skipped) line["skipped"] = true;
  if (metrics.validation) {
    line["valid_loss"] = metrics.validation->loss;
    line["valid_perplexity"] = perplexity(metrics.validation->loss);
    line["valid_accuracy"] = metrics.validation->accuracy;
    line["valid_masked_tokens"] = metrics.validation->masked_tokens;
  }
  if (!metrics.entropy.empty()) line["entropy"] = metrics.entropy;
  return line.dump();
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t step) : path_(path) {
  write_file(path, lines_up_to(path, step));
  file_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  check(file_ >= 0, ExitCode::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  flush();
  close(file_);
}

/// False, with errno, when something is left waiting.
bool MetricsFile::flush() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(file_, waiting_.data(), waiting_.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  }
  return true;
}

void MetricsFile::write(const StepMetrics& metrics) {
  waiting_ += to_json_line(metrics) + "\n";
  if (flush() || warned_) return;
  warned_ = true;
  log::warn("{}: cannot be written now, its lines wait: {}", path_, std::strerror(errno));
}

void MetricsFile::finish() {
  if (!flush()) fail(ExitCode::kIo, "{}: cannot be written: {}", path_, std::strerror(errno));
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string progress_line(const StepMetrics& metrics, std::int64_t steps, double seconds_left) {
  return fmt::format(
      "step {}/{}, {} left: loss {:.4f} perplexity {:.4g} accuracy {:.4f} lr {:.3g} norm {:.3g} {:.0f} tokens/s{}",
      metrics.step, steps, duration_text(seconds_left), metrics.loss, perplexity(metrics.loss), metrics.accuracy,
      metrics.learning_rate, metrics.gradient_norm, metrics.tokens_per_second, metrics.skipped ? " (skipped)" : "");
}

Progress::Progress(std::int64_t steps, std::int64_t every) : steps_(steps), every_(every), interactive_(log::interactive()) {}

Progress::~Progress() { pause(); }

double Progress::seconds_left(const StepMetrics& metrics) {
  recent_.push_back(metrics.seconds);
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  const double mean = std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
  return mean * static_cast<double>(steps_ - metrics.step);
}

void Progress::show(const StepMetrics& metrics) {
  const std::string line = progress_line(metrics, steps_, seconds_left(metrics));
  const bool due = metrics.step % every_ == 0 || metrics.step == steps_ || metrics.skipped;
  if (interactive_ && !log::quiet()) {
    std::fprintf(stderr, "\r\033[K%s", line.substr(0, terminal_columns()).c_str());
    visible_ = true;
  } else if (due) {
    log::info_line(line);
  }
}

void Progress::pause() {
  if (visible_) std::fputs("\r\033[K", stderr);
  visible_ = false;
}

}  // namespace gau
