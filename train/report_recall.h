// What an evaluation found of recall at a distance, as text, CSV and JSON. All are empty when nothing was measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "train/evaluation.h"

namespace gau {

/// Tables of accuracy (in %), loss among the values of the class, attention on the fact (highest of the layers) and number of
/// queries: a row a method, length and side, a column a range of distances.
std::string recall_text(std::span<const Evaluation> evaluations);

/// One line a (model, method, length, side, range of distances) after a header line.
std::string recall_csv(std::span<const Evaluation> evaluations);

/// [{"method", "length", "side": "both"|"left"|"right", "distance_first", "distance_last", "queries", "accuracy", "loss",
/// "attention", "attention_last"}, …]; the range from 1 to length - 1 is that of all queries.
nlohmann::ordered_json recall_json(const Evaluation& evaluation);

}  // namespace gau
