// An inspection as a text table, CSV, JSON, HDF5 and pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/inspector.h"

namespace gau {

/// A row a method and layer, a column a length: mean row entropy in nats.
std::string text_table(const Inspection& inspection);
/// One line a (method, length, layer) after a header line.
std::string csv_table(const Inspection& inspection);
/// Everything but the heat maps; values that are not finite are null.
nlohmann::ordered_json to_json(const Inspection& inspection);

/// Writes inspect.h5 (all arrays), inspect.csv, inspect.json, and entropy, distance, angles and heatmap as .svg and .png into
/// `directory` (made when it is not there). Angles and heat maps are those of the longest length; of many layers, at most six
/// are drawn. Throws Error(kIo) with the path.
void write_inspection(const Inspection& inspection, const std::string& directory);

}  // namespace gau
