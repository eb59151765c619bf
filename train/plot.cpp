// The gnuplot commands of line plots.
#include "train/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "framework/log.h"
#include "train/gnuplot.h"

namespace gau {
namespace {

// Okabe and Ito's colours, told apart by colour-blind readers too; yellow left out, since it vanishes on white.
constexpr std::array<const char*, 7> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
constexpr std::array<int, 6> kPoints{7, 5, 9, 13, 11, 3};
constexpr std::size_t kMostTicks = 14;

/// Where the x axis has its ticks: at every x of the points.
std::set<double> places(const Plot& plot) {
  std::set<double> xs;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) xs.insert(point.x);
  }
  return xs;
}

std::string tick_list(const std::vector<double>& at) {
  std::string list;
  for (double value : at) list += fmt::format("{}'{}' {}", list.empty() ? "" : ", ", value, value);
  return list;
}

/// gnuplot widens a logarithmic axis to whole decades and labels only those: range and ticks (1, 2, 5) are set here instead.
std::string log_axis(const Plot& plot) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  const auto include = [&](double y) {
    if (!std::isfinite(y) || y <= 0) return;
    low = std::min(low, y);
    high = std::max(high, y);
  };
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& p : series.points) {
      if (!std::isfinite(p.y)) continue;
      for (double y : {p.y, p.low, p.high}) include(y);
    }
  }
  for (const PlotLevel& level : plot.levels) include(level.y);
  low /= 1.2;
  high *= 1.2;
  std::vector<double> at;
  const bool decades_alone = high / low > 1e5;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
    for (double step : {1, 2, 5}) {
      const double tick = decade * step;
      if (tick >= low && tick <= high && (step == 1 || !decades_alone)) at.push_back(tick);
    }
  }
  std::string script = fmt::format("set logscale y\nset yrange [{}:{}]\n", low, high);
  if (at.size() <= kMostTicks) script += "set ytics (" + tick_list(at) + ")\n";
  return script;
}

std::string axes(const Plot& plot) {
  std::string script;
  const std::set<double> xs = places(plot);
  if (plot.log_y) script += log_axis(plot);
  if (plot.from_zero) script += "set yrange [0:*]\n";
  if (plot.log_x && !xs.empty()) {
    script += fmt::format("set logscale x 2\nset xrange [{}:{}]\n", *xs.begin() / 1.12, *xs.rbegin() * 1.12);
    if (xs.size() <= kMostTicks) script += "set xtics (" + tick_list({xs.begin(), xs.end()}) + ")\n";
  }
  return script;
}

/// The terms of the plot command: a line with error bars for each series, a dashed one for each level.
std::string terms(const Plot& plot, const std::string& data) {
  std::string script;
  const auto separator = [&] { return script.empty() ? "plot " : ", \\\n     "; };
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    script += fmt::format("{}'{}' index {} using 1:2:3:4 with yerrorlines lw 1.8 pt {} ps 0.9 dt {} lc rgb '{}' title {}",
                          separator(), data, s, kPoints[s % kPoints.size()], 1 + s / kColours.size() % 4,
                          kColours[s % kColours.size()], quoted(plot.series[s].label));
  }
  for (std::size_t l = 0; l < plot.levels.size(); ++l) {
    if (!std::isfinite(plot.levels[l].y)) continue;
    script += fmt::format("{}{} with lines lw 1.4 dt {} lc rgb '#7f7f7f' title {}", separator(), plot.levels[l].y, 2 + l % 4,
                          quoted(plot.levels[l].label));
  }
  return script + "\n";
}

/// Characters of three and four bytes: what a common font may lack.
std::set<char32_t> far_characters(const Plot& plot) {
  std::set<char32_t> found;
  const auto add = [&](const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto lead = static_cast<unsigned char>(text[i]);
      if (lead < 0xE0) continue;
      const std::size_t more = lead >= 0xF0 ? 3 : 2;
      char32_t code = lead & (more == 3 ? 0x07u : 0x0Fu);
      for (std::size_t k = 1; k <= more && i + k < text.size(); ++k)
        code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3Fu);
      found.insert(code);
    }
  };
  add(plot.title);
  for (const PlotSeries& series : plot.series) add(series.label);
  for (const PlotLevel& level : plot.levels) add(level.label);
  return found;
}

std::string without_far_characters(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) == 0x80 && !out.empty() && out.back() == '?') continue;
    out += byte >= 0xE0 ? '?' : text[i];
  }
  return out;
}

/// The plot with '?' where a font is missing; the SVG is drawn by its reader's fonts and keeps every character.
Plot for_bitmap(Plot plot) {
  if (fonts_have(far_characters(plot))) return plot;
  static bool warned = false;
  if (!warned) {
    log::warn(
        "no font has all characters of the labels: PNG plots show ? for them. On Debian or Ubuntu: apt-get install "
        "fonts-noto-cjk");
  }
  warned = true;
  plot.title = without_far_characters(plot.title);
  for (PlotSeries& series : plot.series) series.label = without_far_characters(series.label);
  for (PlotLevel& level : plot.levels) level.label = without_far_characters(level.label);
  return plot;
}

}  // namespace

std::string gnuplot_data(const Plot& plot) {
  std::string data;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& p : series.points) {
      if (!std::isfinite(p.y)) {
        data += fmt::format("{} NaN NaN NaN\n", p.x);
        continue;
      }
      const double low = std::isfinite(p.low) ? p.low : p.y;
      const double high = std::isfinite(p.high) ? p.high : p.y;
      data += fmt::format("{} {} {} {}\n", p.x, p.y, low, high);
    }
    data += "\n\n";
  }
  return data;
}

namespace {

std::string terminal(Picture picture, int width, int height) {
  if (picture == Picture::kSvg) {
    return fmt::format(
        "set encoding utf8\nset terminal svg size {},{} dynamic font 'sans-serif,13' noenhanced background '#ffffff'\n"
        "set output 'plot.svg'\n",
        width, height);
  }
  return fmt::format(
      "set encoding utf8\nset terminal pngcairo size {},{} font 'sans,12' fontscale 1.35 linewidth 1.5 noenhanced background "
      "'#ffffff'\nset output 'plot.png'\n",
      width * 3 / 2, height * 3 / 2);
}

/// Title, labels, lines and axes of one plot, without its key.
std::string frame(const Plot& plot) {
  std::string script = "set datafile missing 'NaN'\n";
  script += fmt::format("set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n", quoted(plot.title),
                        quoted(plot.x_label), quoted(plot.y_label));
  script += "set border 3 lc rgb '#404040'\nset tics nomirror out\nset bars 0.6\n";
  script += "set offsets graph 0, graph 0, graph 0.04, graph 0.04\n";
  script += "set grid xtics ytics lc rgb '#dddddd' lw 0.8 dt 1\n";
  return script + axes(plot);
}

/// A cell of a grid that holds nothing but the key.
std::string key_cell(const Plot& plot) {
  std::string script =
      "reset\nunset border\nunset tics\nset xrange [0:1]\nset yrange [0:1]\nset key center center Left reverse noenhanced "
      "samplen 2.5 spacing 1.3\n";
  std::string terms;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    terms += fmt::format("{}NaN with linespoints lw 1.8 pt {} ps 0.9 dt {} lc rgb '{}' title {}", s == 0 ? "plot " : ", ",
                         kPoints[s % kPoints.size()], 1 + s / kColours.size() % 4, kColours[s % kColours.size()],
                         quoted(plot.series[s].label));
  }
  return script + terms + "\n";
}

std::string panel_data(std::size_t panel) { return fmt::format("data{}.txt", panel); }

std::string panels_script(const std::vector<Plot>& panels, Picture picture) {
  constexpr int kWidth = 440, kHeight = 320;
  const int cells = static_cast<int>(panels.size()) + 1;
  const int columns = cells <= 3 ? cells : static_cast<int>(std::ceil(std::sqrt(cells)));
  const int rows = (cells + columns - 1) / columns;
  std::string script = terminal(picture, kWidth * columns, kHeight * rows);
  script += fmt::format("set multiplot layout {},{}\n", rows, columns);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    script += "reset\nunset key\n" + frame(panels[p]) + terms(panels[p], panel_data(p));
  }
  return script + key_cell(panels.front()) + "unset multiplot\nset output\n";
}

bool has_finite(const Plot& plot) {
  return std::any_of(plot.series.begin(), plot.series.end(), [](const PlotSeries& s) {
    return std::any_of(s.points.begin(), s.points.end(), [](const PlotPoint& p) { return std::isfinite(p.y); });
  });
}

}  // namespace

std::string gnuplot_script(const Plot& plot, Picture picture) {
  return terminal(picture, 960, 540) + frame(plot) +
         "set key outside right top Left reverse noenhanced samplen 2.5 spacing 1.25\n" + terms(plot, "data.txt") +
         "set output\n";
}

bool draw(const Plot& plot, const std::string& svg_path, const std::string& png_path) {
  if (!has_finite(plot)) {
    log::warn("{}: no finite value to draw; no plot is written", svg_path);
    return true;
  }
  return run_gnuplot({{"data.txt", gnuplot_data(plot)},
                      {"svg.gp", gnuplot_script(plot, Picture::kSvg)},
                      {"png.gp", gnuplot_script(for_bitmap(plot), Picture::kPng)}},
                     {{"plot.svg", svg_path}, {"plot.png", png_path}});
}

bool draw_panels(const std::vector<Plot>& panels, const std::string& svg_path, const std::string& png_path) {
  if (panels.empty() || !std::all_of(panels.begin(), panels.end(), has_finite)) {
    log::warn("{}: a panel has no finite value to draw; no plot is written", svg_path);
    return true;
  }
  std::vector<Plot> bitmaps;
  std::vector<ScriptFile> files;
  for (const Plot& panel : panels) {
    bitmaps.push_back(for_bitmap(panel));
    files.push_back({panel_data(files.size()), gnuplot_data(panel)});
  }
  files.push_back({"svg.gp", panels_script(panels, Picture::kSvg)});
  files.push_back({"png.gp", panels_script(bitmaps, Picture::kPng)});
  return run_gnuplot(files, {{"plot.svg", svg_path}, {"plot.png", png_path}});
}

}  // namespace gau
