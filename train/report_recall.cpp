// Tables of recall.
#include "train/report_recall.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "train/report.h"

namespace gau {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(RecallSide side) {
  switch (side) {
    case RecallSide::kBoth:
      return "both";
    case RecallSide::kLeft:
      return "left";
    case RecallSide::kRight:
      return "right";
  }
  return "?";
}

bool is_whole(const RecallRow& row) { return row.first == 1 && row.last == row.length - 1; }

/// A column: its first distance, 0 for all of them. A range that the length cuts short shares the column of the whole one.
std::int64_t column_of(const RecallRow& row) { return is_whole(row) ? 0 : row.first; }

struct RecallLine {
  std::string label;
  std::map<std::int64_t, const RecallRow*> columns;
};

std::vector<RecallLine> lines_of(std::span<const Evaluation> evaluations) {
  std::vector<RecallLine> lines;
  for (const Evaluation& evaluation : evaluations) {
    for (const RecallRow& row : evaluation.recall) {
      const std::string model = evaluations.size() > 1 ? evaluation.model + ": " : "";
      const std::string label = fmt::format("{}{} at {}, {}", model, row.method, row.length, name_of(row.side));
      if (lines.empty() || lines.back().label != label) lines.push_back({label, {}});
      lines.back().columns[column_of(row)] = &row;
    }
  }
  return lines;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t have = display_width(text);
  return text + std::string(width > have ? width - have : 0, ' ');
}

std::string recall_table(const std::vector<RecallLine>& lines, const std::string& title,
                         const std::function<std::string(const RecallRow&)>& cell) {
  std::map<std::int64_t, std::int64_t> ends;  // of columns
  std::size_t width = display_width(title);
  for (const RecallLine& line : lines) {
    width = std::max(width, display_width(line.label));
    for (const auto& [column, row] : line.columns) ends[column] = std::max(ends[column], row->last);
  }
  std::string out = padded(title, width);
  for (const auto& [column, end] : ends) {
    const std::string range = column == end ? fmt::format("{}", end) : fmt::format("{}-{}", column, end);
    out += fmt::format("  {:>9}", column == 0 ? "all" : range);
  }
  out += '\n';
  for (const RecallLine& line : lines) {
    std::string text = padded(line.label, width);
    for (const auto& [column, end] : ends) {
      const auto found = line.columns.find(column);
      text += fmt::format("  {:>9}", found == line.columns.end() ? "" : cell(*found->second));
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string recall_text(std::span<const Evaluation> evaluations) {
  const std::vector<RecallLine> lines = lines_of(evaluations);
  if (lines.empty()) return "";
  const auto decimal = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  std::string out = "\nrecall by distance between query and fact, and by the side of the query that the fact is on\n\n";
  out += recall_table(lines, "accuracy, %", [&](const RecallRow& row) { return decimal(100 * row.accuracy, 1); });
  out += '\n' + recall_table(lines, "loss in class, nats", [&](const RecallRow& row) { return decimal(row.loss, 3); });
  out += '\n' + recall_table(lines, "attention on fact", [&](const RecallRow& row) { return decimal(row.attention, 3); });
  out += '\n' + recall_table(lines, "queries", [&](const RecallRow& row) { return fmt::format("{}", row.queries); });
  return out;
}

std::string recall_csv(std::span<const Evaluation> evaluations) {
  std::string out;
  for (const Evaluation& evaluation : evaluations) {
    for (const RecallRow& row : evaluation.recall) {
      out += fmt::format("{},{},{},{},{},{},{}", csv_field(evaluation.model), csv_field(row.method), row.length,
                         name_of(row.side), row.first, row.last, row.queries);
      for (const double value : {row.accuracy, row.loss, row.attention, row.attention_last}) out += ',' + csv_number(value);
      out += '\n';
    }
  }
  if (out.empty()) return out;
  return "model,method,length,side,distance_first,distance_last,queries,accuracy,loss,attention,attention_last\n" + out;
}

Json recall_json(const Evaluation& evaluation) {
  Json out = Json::array();
  for (const RecallRow& row : evaluation.recall) {
    out.push_back({{"method", row.method},
                   {"length", row.length},
                   {"side", name_of(row.side)},
                   {"distance_first", row.first},
                   {"distance_last", row.last},
                   {"queries", row.queries},
                   {"accuracy", number(row.accuracy)},
                   {"loss", number(row.loss)},
                   {"attention", number(row.attention)},
                   {"attention_last", number(row.attention_last)}});
  }
  return out;
}

}  // namespace gau
