// Runs gnuplot in a directory of its own with plain file names, so that no path, label or locale of the user's reaches its
// command language unquoted; the pictures are then moved to where they belong.
#include "train/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/log.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

// Okabe and Ito's colours, told apart by colour-blind readers too; yellow left out, since it vanishes on white.
constexpr std::array<const char*, 7> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
constexpr std::array<int, 6> kPoints{7, 5, 9, 13, 11, 3};
constexpr std::size_t kMostTicks = 14;

/// A string in gnuplot's single quotes, where only the quote itself is special.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "'";
}

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
  if (plot.log_x && !xs.empty()) {
    script += fmt::format("set logscale x 2\nset xrange [{}:{}]\n", *xs.begin() / 1.12, *xs.rbegin() * 1.12);
    if (xs.size() <= kMostTicks) script += "set xtics (" + tick_list({xs.begin(), xs.end()}) + ")\n";
  }
  return script;
}

/// The terms of the plot command: a line with error bars for each series, a dashed one for each level.
std::string terms(const Plot& plot) {
  std::string script;
  const auto separator = [&] { return script.empty() ? "plot " : ", \\\n     "; };
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    script += fmt::format("{}'data.txt' index {} using 1:2:3:4 with yerrorlines lw 1.8 pt {} ps 0.9 dt {} lc rgb '{}' title {}",
                          separator(), s, kPoints[s % kPoints.size()], 1 + s / kColours.size() % 4,
                          kColours[s % kColours.size()], quoted(plot.series[s].label));
  }
  for (std::size_t l = 0; l < plot.levels.size(); ++l) {
    if (!std::isfinite(plot.levels[l].y)) continue;
    script += fmt::format("{}{} with lines lw 1.4 dt {} lc rgb '#7f7f7f' title {}", separator(), plot.levels[l].y, 2 + l % 4,
                          quoted(plot.levels[l].label));
  }
  return script + "\n";
}

/// A directory under the system's temporary one that goes away with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "gau-plot-XXXXXX").string();
    check(!error && mkdtemp(pattern.data()) != nullptr, ExitCode::kIo,
          "{}: cannot make a directory for plotting: {}; set TMPDIR to one that can be written", pattern,
          error ? error.message() : std::strerror(errno));
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

enum class Outcome { kDone, kMissing, kFailed };

/// Runs a program inside the directory, without a shell; what it says goes to `output` there.
Outcome run_program(const TemporaryDirectory& directory, std::vector<std::string> words, const char* output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, directory.path().c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, directory.file(output).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT || error == EACCES) return Outcome::kMissing;
  check(error == 0, ExitCode::kIo, "{} cannot be started: {}", words[0], std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Outcome::kDone : Outcome::kFailed;
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

/// Whether some installed font has all of them; gnuplot draws a missing one as a box of the size of the whole picture.
bool fonts_have(const TemporaryDirectory& directory, const std::set<char32_t>& characters) {
  if (characters.empty()) return true;
  std::string charset = ":charset=";
  for (char32_t code : characters) charset += fmt::format("{:x} ", static_cast<std::uint32_t>(code));
  charset.pop_back();
  return run_program(directory, {"fc-list", charset}, "fonts.txt") == Outcome::kDone &&
         !read_file(directory.file("fonts.txt")).empty();
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
Plot for_bitmap(Plot plot, const TemporaryDirectory& directory) {
  if (fonts_have(directory, far_characters(plot))) return plot;
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

std::string gnuplot_script(const Plot& plot, Picture picture) {
  std::string script = "set encoding utf8\nset datafile missing 'NaN'\n";
  if (picture == Picture::kSvg) {
    script += "set terminal svg size 960,540 dynamic font 'sans-serif,13' noenhanced background '#ffffff'\n";
  } else {
    script +=
        "set terminal pngcairo size 1440,810 font 'sans,12' fontscale 1.35 linewidth 1.5 noenhanced background '#ffffff'\n";
  }
  script += fmt::format("set output 'plot.{}'\n", picture == Picture::kSvg ? "svg" : "png");
  script += fmt::format("set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n", quoted(plot.title),
                        quoted(plot.x_label), quoted(plot.y_label));
  script += "set border 3 lc rgb '#404040'\nset tics nomirror out\nset bars 0.6\n";
  script += "set offsets graph 0, graph 0, graph 0.04, graph 0.04\n";
  script += "set grid xtics ytics lc rgb '#dddddd' lw 0.8 dt 1\n";
  script += "set key outside right top Left reverse noenhanced samplen 2.5 spacing 1.25\n";
  return script + axes(plot) + terms(plot) + "set output\n";
}

bool draw(const Plot& plot, const std::string& svg_path, const std::string& png_path) {
  const auto finite = [](const PlotSeries& s) {
    return std::any_of(s.points.begin(), s.points.end(), [](const PlotPoint& p) { return std::isfinite(p.y); });
  };
  if (std::none_of(plot.series.begin(), plot.series.end(), finite)) {
    log::warn("{}: no finite value to draw; no plot is written", svg_path);
    return true;
  }
  const TemporaryDirectory directory;
  write_file(directory.file("data.txt"), gnuplot_data(plot));
  write_file(directory.file("svg.gp"), gnuplot_script(plot, Picture::kSvg));
  write_file(directory.file("png.gp"), gnuplot_script(for_bitmap(plot, directory), Picture::kPng));
  // -d: without the user's own start-up files.
  const Outcome outcome = run_program(directory, {"gnuplot", "-d", "svg.gp", "png.gp"}, "messages.txt");
  if (outcome == Outcome::kMissing) {
    static bool warned = false;
    if (!warned) log::warn("gnuplot is not installed: no plots are written. On Debian or Ubuntu: apt-get install gnuplot-nox");
    warned = true;
    return false;
  }
  std::string messages = read_file(directory.file("messages.txt"));
  std::replace(messages.begin(), messages.end(), '\n', ' ');
  check(outcome == Outcome::kDone, ExitCode::kIo, "{}: gnuplot failed: {}", svg_path, messages);
  write_file(svg_path, read_file(directory.file("plot.svg")));
  write_file(png_path, read_file(directory.file("plot.png")));
  return true;
}

}  // namespace gau
