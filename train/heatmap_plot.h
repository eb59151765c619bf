// Heat maps of attention through gnuplot: a grid of pictures, one colour scale for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/inspector.h"

namespace gau {

struct HeatmapPanel {
  std::string title;
  const Heatmap* map = nullptr;
  std::int64_t length = 0;  ///< tokens that its sides stand for
};

/// Writes the panels in rows of `columns` as an SVG and a PNG file. Colour is the logarithm of the weight relative to uniform
/// attention, from 1/100 to 100 or more. Returns and throws as draw() does.
bool draw_heatmaps(const std::vector<HeatmapPanel>& panels, std::int64_t columns, const std::string& title,
                   const std::string& svg_path, const std::string& png_path);

}  // namespace gau
