#include "train/heatmap_plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "train/gnuplot.h"

namespace gau {
namespace {

constexpr int kCell = 300;    // points of a panel's side
constexpr int kLegend = 140;  // of the colour scale on the right
constexpr int kHeading = 40;  // of the title
constexpr float kFaintest = 0.01F;

/// Values as gnuplot's binary matrix of floats; 0 is drawn as the faintest.
std::string binary_of(const Heatmap& map) {
  std::vector<float> values = map.cells;
  for (float& value : values) value = std::max(value, kFaintest);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string map_name(std::size_t panel) { return fmt::format("map{}.bin", panel); }

std::string panel_script(const HeatmapPanel& panel, std::size_t index, bool left, bool bottom) {
  const Heatmap& map = *panel.map;
  const double length = static_cast<double>(panel.length);
  const double dx = length / static_cast<double>(map.columns), dy = length / static_cast<double>(map.rows);
  // An image is one embedded bitmap in an SVG; drawn as pixels, each cell would be a polygon of its own.
  std::string script = fmt::format("set title {} noenhanced\nset xrange [0:{}]\nset yrange [{}:0]\n", quoted(panel.title),
                                   panel.length, panel.length);
  script += fmt::format("set xlabel '{}' offset 0,0.4\nset ylabel '{}' offset 1,0\n", bottom ? "key" : "", left ? "query" : "");
  script += fmt::format("set xtics ({}) offset 0,0.4\nset ytics ({}) offset 0.6,0\n",
                        fmt::format("'0' 0, '{}' {}, '{}' {}", panel.length / 2, panel.length / 2, panel.length, panel.length),
                        fmt::format("'0' 0, '{}' {}, '{}' {}", panel.length / 2, panel.length / 2, panel.length, panel.length));
  script +=
      fmt::format("plot '{}' binary array=({},{}) format='%float' dx={} dy={} origin=({},{}) using 1 with image notitle\n",
                  map_name(index), map.columns, map.rows, dx, dy, dx / 2, dy / 2);
  return script;
}

std::string script_of(const std::vector<HeatmapPanel>& panels, std::int64_t columns, const std::string& title, double brightest,
                      bool svg) {
  const auto rows = (static_cast<std::int64_t>(panels.size()) + columns - 1) / columns;
  const int scale = svg ? 2 : 3;  // halves: bitmaps are one and a half times as large
  const auto width = (kCell * columns + kLegend) * scale / 2, height = (kCell * rows + kHeading) * scale / 2;
  const double right = 1 - static_cast<double>(kLegend) / static_cast<double>(kCell * columns + kLegend);
  const double top = 1 - static_cast<double>(kHeading) / static_cast<double>(kCell * rows + kHeading);
  std::string script = "set encoding utf8\n";
  script += fmt::format("set terminal {} size {},{} font '{}' noenhanced background '#ffffff'\nset output 'plot.{}'\n",
                        svg ? "svg dynamic" : "pngcairo fontscale 1.35", width, height, svg ? "sans-serif,12" : "sans,11",
                        svg ? "svg" : "png");
  script += fmt::format("set multiplot\nset label 1 {} at screen 0.5,{} center noenhanced\n", quoted(title), (1 + top) / 2);
  script +=
      "set logscale cb 10\nset cblabel 'weight x length (uniform: 1)'\nset tics out nomirror\nset border lc rgb '#404040'\n";
  script += fmt::format("set cbrange [{}:{}]\n", kFaintest, brightest);
  // From white through blue to almost black: darker is more, in print and for colour-blind readers too.
  script +=
      "set palette defined (0 '#ffffff', 0.35 '#d7e6f4', 0.5 '#9ecae1', 0.65 '#4a98c9', 0.8 '#1764ab', 0.92 '#083370', "
      "1 '#1a0a2e')\nunset key\n";
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const auto row = static_cast<std::int64_t>(p) / columns, column = static_cast<std::int64_t>(p) % columns;
    const double w = right / static_cast<double>(columns), h = top / static_cast<double>(rows);
    const double x = w * static_cast<double>(column), y = top - h * static_cast<double>(row + 1);
    script +=
        fmt::format("set lmargin at screen {}\nset rmargin at screen {}\nset bmargin at screen {}\nset tmargin at screen {}\n",
                    x + 0.25 * w, x + 0.96 * w, y + 0.2 * h, y + 0.89 * h);
    if (p == 0) {
      script += fmt::format("set colorbox user origin screen {},{} size screen {},{}\n", right + 0.1 * (1 - right), 0.17 * top,
                            0.14 * (1 - right), 0.66 * top);
    }
    script += panel_script(panels[p], p, column == 0, row + 1 == rows);
    if (p == 0) script += "unset colorbox\nunset label 1\n";
  }
  return script + "unset multiplot\nset output\n";
}

}  // namespace

bool draw_heatmaps(const std::vector<HeatmapPanel>& panels, std::int64_t columns, const std::string& title,
                   const std::string& svg_path, const std::string& png_path) {
  float brightest = 100;
  std::vector<ScriptFile> files;
  for (const HeatmapPanel& panel : panels) {
    brightest = std::max(brightest, *std::max_element(panel.map->cells.begin(), panel.map->cells.end()));
    files.push_back({map_name(files.size()), binary_of(*panel.map)});
  }
  files.push_back({"svg.gp", script_of(panels, columns, title, brightest, true)});
  files.push_back({"png.gp", script_of(panels, columns, title, brightest, false)});
  return run_gnuplot(files, {{"plot.svg", svg_path}, {"plot.png", png_path}});
}

}  // namespace gau
