// An evaluation as a text table, CSV, JSON and plots. Several evaluations (models) go into one table and one plot.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "train/evaluation.h"
#include "train/plot.h"

namespace gau {

/// Tables of perplexity, accuracy (in %) and gain over crop: a row a method, a column a length, intervals below the figures.
std::string text_table(std::span<const Evaluation> evaluations);

/// One line a (model, method, length) after a header line; fields quoted as in RFC 4180 where they must be. Infinity is "inf",
/// a value that is not there is empty.
std::string csv_table(std::span<const Evaluation> evaluations);

/// {"model", "protocol", "corpus", "results": […]}; values that are not finite are null. Several evaluations:
/// {"evaluations": […]}. The recall task adds "recall": see recall_json().
nlohmann::ordered_json to_json(const Evaluation& evaluation);
nlohmann::ordered_json to_json(std::span<const Evaluation> evaluations);

enum class Figure { kPerplexity, kAccuracy };
/// The figure against length, a line a method (and model), crop as a level.
Plot make_plot(std::span<const Evaluation> evaluations, Figure figure);

/// Writes eval.csv, recall.csv (of the recall task), eval.json, perplexity.svg, perplexity.png, accuracy.svg and accuracy.png
/// into `directory` (made when it is not there). Without gnuplot: a warning, and no plots. Throws Error(kIo) with the path.
void write_report(std::span<const Evaluation> evaluations, const std::string& directory);

/// A field of CSV, quoted where it must be, and a number, empty when there is none.
std::string csv_field(const std::string& text);
std::string csv_number(double value);

/// Columns that text takes on a terminal: 2 for East Asian wide characters, 1 for others.
std::size_t display_width(const std::string& utf8);

}  // namespace gau
