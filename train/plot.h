// Line plots through gnuplot: figures with error bars against sequence length.
//
// gnuplot is a separate program, so that the library needs no plotting code and a machine without it loses nothing but
// pictures.
#pragma once

#include <string>
#include <vector>

namespace gau {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;  ///< ends of the error bar; NaN: none
  double high = 0;
};

struct PlotSeries {
  std::string label;
  std::vector<PlotPoint> points;  ///< ascending in x; points that are not finite leave a gap
};

/// A dashed horizontal line.
struct PlotLevel {
  std::string label;
  double y = 0;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = true;  ///< base 2, ticks at the x of the points
  bool log_y = false;
  bool from_zero = false;  ///< the y axis begins at 0
  std::vector<PlotSeries> series;
  std::vector<PlotLevel> levels;
};

/// Writes the plot as an SVG and a PNG file. Returns false, with one warning in the life of the program, when gnuplot is not
/// installed. Throws Error(kIo) when gnuplot fails (with what it said) or a file cannot be written.
bool draw(const Plot& plot, const std::string& svg_path, const std::string& png_path);

/// Plots in a grid, one key for all: the first one's, in a cell of its own. Otherwise as draw().
bool draw_panels(const std::vector<Plot>& panels, const std::string& svg_path, const std::string& png_path);

enum class Picture { kSvg, kPng };
/// The gnuplot commands that draw data.txt (one block a series) into plot.svg or plot.png.
std::string gnuplot_script(const Plot& plot, Picture picture);
/// The blocks of data.txt.
std::string gnuplot_data(const Plot& plot);

}  // namespace gau
