// Text, CSV, JSON and plots of evaluations.
//
// A cell of the text table has its figure on one line and the interval on the next, which keeps seven lengths within a
// terminal's width. Numbers are formatted by fmt, which knows no locale.
#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "train/metrics.h"
#include "train/report_recall.h"

namespace gau {

double EvalRow::perplexity() const { return gau::perplexity(loss.value); }

namespace {

using Json = nlohmann::ordered_json;

/// Three significant digits: 17.2, 414, 1.2e+07; infinity is "inf", what is not there "-".
std::string figure(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

std::string range(double low, double high) {
  if (std::isnan(low) || std::isnan(high)) return "";
  return figure(low) + "-" + figure(high);
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::size_t have = display_width(text);
  const std::string space(width > have ? width - have : 0, ' ');
  return right ? space + text : text + space;
}

/// Which model, when there are several, and which method.
std::string row_label(std::span<const Evaluation> evaluations, const Evaluation& evaluation, const EvalRow& row) {
  return evaluations.size() > 1 ? evaluation.model + ": " + row.method : row.method;
}

/// A method of a model over lengths, in the order of the evaluation's rows.
struct Line {
  std::string label;
  bool crop = false;
  std::map<std::int64_t, const EvalRow*> by_length;
};

std::vector<Line> lines_of(std::span<const Evaluation> evaluations) {
  std::vector<Line> lines;
  for (const Evaluation& evaluation : evaluations) {
    const std::size_t first = lines.size();
    for (const EvalRow& row : evaluation.rows) {
      const std::string label = row_label(evaluations, evaluation, row);
      auto line = std::find_if(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end(),
                               [&](const Line& l) { return l.label == label; });
      if (line == lines.end()) line = lines.insert(lines.end(), Line{label, row.method == kCropMethod, {}});
      line->by_length[row.length] = &row;
    }
  }
  return lines;
}

struct Cell {
  std::string figure;
  std::string interval;
};
using CellOf = std::function<Cell(const EvalRow&)>;

/// One table: a header, then two lines a method (the second only when it has intervals).
std::string table(const std::vector<Line>& lines, const std::string& title, const CellOf& cell_of) {
  std::set<std::int64_t> lengths;
  std::size_t label_width = display_width(title);
  for (const Line& line : lines) {
    label_width = std::max(label_width, display_width(line.label));
    for (const auto& [length, row] : line.by_length) lengths.insert(length);
  }
  std::map<std::int64_t, std::size_t> widths;
  for (std::int64_t length : lengths) {
    std::size_t& width = widths[length];
    width = fmt::format("{}", length).size();
    for (const Line& line : lines) {
      const auto found = line.by_length.find(length);
      if (found == line.by_length.end()) continue;
      const Cell cell = cell_of(*found->second);
      width = std::max({width, cell.figure.size(), cell.interval.size()});
    }
  }
  std::string out = padded(title, label_width, false);
  for (std::int64_t length : lengths) out += "  " + padded(fmt::format("{}", length), widths[length], true);
  out += '\n';
  for (const Line& line : lines) {
    std::string upper = padded(line.label, label_width, false);
    std::string lower(label_width, ' ');
    for (std::int64_t length : lengths) {
      const auto found = line.by_length.find(length);
      const Cell cell = found == line.by_length.end() ? Cell{} : cell_of(*found->second);
      upper += "  " + padded(cell.figure, widths[length], true);
      lower += "  " + padded(cell.interval, widths[length], true);
    }
    out += upper.substr(0, upper.find_last_not_of(' ') + 1) + '\n';
    const std::size_t end = lower.find_last_not_of(' ');
    if (end != std::string::npos) out += lower.substr(0, end + 1) + '\n';
  }
  return out;
}

/// What was evaluated on what: a line a model.
std::string heading(const Evaluation& evaluation) {
  const EvalRow* longest = nullptr;
  for (const EvalRow& row : evaluation.rows) {
    if (longest == nullptr || row.length > longest->length) longest = &row;
  }
  std::string out = fmt::format("{}: protocol {} on {} ({}: {} documents, {} tokens)", evaluation.model, evaluation.protocol,
                                evaluation.corpus, evaluation.split, evaluation.corpus_documents, evaluation.corpus_tokens);
  if (evaluation.train_length > 0) out += fmt::format(", trained at {}", evaluation.train_length);
  if (longest == nullptr) return out + '\n';
  std::string spacing;
  if (evaluation.stride > 0) spacing = fmt::format(", every {} tokens", evaluation.stride);
  if (evaluation.target_limit > 0) {
    spacing += fmt::format(" (at most {} {}, evenly spaced)", evaluation.target_limit,
                           evaluation.protocol == "paper" ? "a document" : "in all");
  }
  out += fmt::format("\n  at {}: {} targets in {} documents{}, {} {}; 95 % intervals: {}\n", longest->length, longest->targets,
                     longest->documents, spacing, longest->skipped,
                     evaluation.protocol == "labels" ? "of another length" : "too short", longest->intervals);
  return out;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void put(Json& object, const std::string& name, const Interval& interval) {
  object[name] = number(interval.value);
  object[name + "_low"] = number(interval.low);
  object[name + "_high"] = number(interval.high);
}

Interval exponential(const Interval& loss) { return {perplexity(loss.value), perplexity(loss.low), perplexity(loss.high)}; }

Interval percent(const Interval& share) { return {100 * share.value, 100 * share.low, 100 * share.high}; }

Json row_json(const EvalRow& row) {
  Json out;
  out["method"] = row.method;
  out["length"] = row.length;
  out["targets"] = row.targets;
  out["documents"] = row.documents;
  out["skipped"] = row.skipped;
  put(out, "loss", row.loss);
  put(out, "perplexity", exponential(row.loss));
  put(out, "accuracy", row.accuracy);
  put(out, "delta", row.delta);
  out["entropy"] = number(row.entropy);
  out["intervals"] = row.intervals;
  out["seconds"] = number(row.seconds);
  return out;
}

Cell cell(const Interval& interval) { return {figure(interval.value), range(interval.low, interval.high)}; }

Cell percent_cell(const Interval& share) {
  const Interval value = percent(share);
  Cell out{std::isnan(value.value) ? "-" : fmt::format("{:.1f}", value.value), ""};
  if (std::isfinite(value.low)) out.interval = fmt::format("{:.1f}-{:.1f}", value.low, value.high);
  return out;
}

Cell signed_cell(const Interval& interval) {
  if (std::isnan(interval.value)) return {"-", ""};
  Cell out{fmt::format("{:+.3f}", interval.value), ""};
  if (std::isfinite(interval.low)) out.interval = fmt::format("{:+.3f} {:+.3f}", interval.low, interval.high);
  return out;
}

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "";
  return fmt::format("{}", value);
}

std::size_t display_width(const std::string& utf8) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    if ((byte & 0xC0) == 0x80) continue;  // continues a character
    // Characters of three bytes from U+1100 on and of four bytes are wide, all but exactly: Hangul, CJK, kana, emoji. Between
    // U+2000 and U+2E7F lie dashes, arrows and signs, which are narrow.
    const auto next = i + 1 < utf8.size() ? static_cast<unsigned char>(utf8[i + 1]) : 0;
    const bool wide = byte >= 0xF0 || (byte >= 0xE3 && byte <= 0xEF) || (byte == 0xE2 && next >= 0xBA);
    width += wide ? 2 : 1;
  }
  return width;
}

std::string text_table(std::span<const Evaluation> evaluations) {
  std::string out;
  bool deltas = false;
  for (const Evaluation& evaluation : evaluations) {
    out += heading(evaluation);
    for (const EvalRow& row : evaluation.rows) deltas = deltas || std::isfinite(row.delta.value);
  }
  std::vector<Line> lines = lines_of(evaluations);
  out += '\n' + table(lines, "perplexity", [](const EvalRow& row) { return cell(exponential(row.loss)); });
  out += '\n' + table(lines, "accuracy, %", [](const EvalRow& row) { return percent_cell(row.accuracy); });
  out += recall_text(evaluations);
  if (!deltas) return out;
  std::erase_if(lines, [](const Line& line) { return line.crop; });
  out += '\n' + table(lines, "loss - crop", [](const EvalRow& row) { return signed_cell(row.delta); });
  return out + "\nloss - crop: nats, paired by target; below 0, the longer context helps\n";
}

std::string csv_table(std::span<const Evaluation> evaluations) {
  std::string out =
      "model,protocol,method,length,targets,documents,skipped,loss,loss_low,loss_high,perplexity,perplexity_low,perplexity_"
      "high,"
      "accuracy,accuracy_low,accuracy_high,delta,delta_low,delta_high,entropy,intervals,seconds\n";
  for (const Evaluation& evaluation : evaluations) {
    for (const EvalRow& row : evaluation.rows) {
      out += fmt::format("{},{},{},{},{},{},{}", csv_field(evaluation.model), evaluation.protocol, csv_field(row.method),
                         row.length, row.targets, row.documents, row.skipped);
      for (const Interval& interval : {row.loss, exponential(row.loss), row.accuracy, row.delta}) {
        out += fmt::format(",{},{},{}", csv_number(interval.value), csv_number(interval.low), csv_number(interval.high));
      }
      out += fmt::format(",{},{},{:.3f}\n", csv_number(row.entropy), row.intervals, row.seconds);
    }
  }
  return out;
}

Json to_json(const Evaluation& evaluation) {
  Json out;
  out["model"] = evaluation.model;
  out["protocol"] = evaluation.protocol;
  out["corpus"] = {{"path", evaluation.corpus},
                   {"split", evaluation.split},
                   {"documents", evaluation.corpus_documents},
                   {"tokens", evaluation.corpus_tokens}};
  out["train_length"] = evaluation.train_length > 0 ? Json(evaluation.train_length) : Json(nullptr);
  out["stride"] = evaluation.stride > 0 ? Json(evaluation.stride) : Json(nullptr);
  out["target_limit"] = evaluation.target_limit > 0 ? Json(evaluation.target_limit) : Json(nullptr);
  out["seed"] = evaluation.seed;
  out["results"] = Json::array();
  for (const EvalRow& row : evaluation.rows) out["results"].push_back(row_json(row));
  if (!evaluation.recall.empty()) out["recall"] = recall_json(evaluation);
  return out;
}

Json to_json(std::span<const Evaluation> evaluations) {
  if (evaluations.size() == 1) return to_json(evaluations.front());
  Json out;
  out["evaluations"] = Json::array();
  for (const Evaluation& evaluation : evaluations) out["evaluations"].push_back(to_json(evaluation));
  return out;
}

Plot make_plot(std::span<const Evaluation> evaluations, Figure figure_kind) {
  const bool perplexity = figure_kind == Figure::kPerplexity;
  Plot plot;
  plot.x_label = "length of the context, tokens";
  plot.y_label = perplexity ? "perplexity" : "accuracy, %";
  for (const Evaluation& evaluation : evaluations) plot.title += (plot.title.empty() ? "" : ", ") + evaluation.model;
  if (!evaluations.empty()) plot.title += " (" + evaluations.front().protocol + ")";
  double smallest = std::numeric_limits<double>::infinity();
  double largest = 0;
  for (const Line& line : lines_of(evaluations)) {
    PlotSeries series{line.label, {}};
    for (const auto& [length, row] : line.by_length) {
      const Interval y = perplexity ? exponential(row->loss) : percent(row->accuracy);
      if (std::isfinite(y.value)) {
        smallest = std::min(smallest, y.value);
        largest = std::max(largest, y.value);
      }
      if (line.crop) {
        plot.levels.push_back({fmt::format("{} {}", line.label, length), y.value});
      } else {
        series.points.push_back({static_cast<double>(length), y.value, y.low, y.high});
      }
    }
    if (!line.crop) plot.series.push_back(std::move(series));
  }
  // Extrapolation that breaks spans decades; on a linear axis all that works would be one flat line.
  plot.log_y = perplexity && largest > 3 * smallest;
  return plot;
}

void write_report(std::span<const Evaluation> evaluations, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check(!error, ExitCode::kIo, "{}: cannot make this directory: {}", directory, error.message());
  const auto in_directory = [&](const char* name) { return (std::filesystem::path(directory) / name).string(); };
  write_file(in_directory("eval.csv"), csv_table(evaluations));
  if (const std::string recall = recall_csv(evaluations); !recall.empty()) write_file(in_directory("recall.csv"), recall);
  write_file(in_directory("eval.json"), to_json(evaluations).dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
  draw(make_plot(evaluations, Figure::kPerplexity), in_directory("perplexity.svg"), in_directory("perplexity.png"));
  draw(make_plot(evaluations, Figure::kAccuracy), in_directory("accuracy.svg"), in_directory("accuracy.png"));
}

}  // namespace gau
