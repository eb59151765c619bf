#include "train/inspect_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "train/heatmap_plot.h"
#include "train/plot.h"

namespace gau {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDrawn = 6;  // layers of a picture

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string csv_number(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

Json json_of(const LayerFigures& f) {
  Json lambda{{"mean", number(f.lambda.mean)}, {"tied", number(f.lambda.tied)}};
  for (std::size_t q = 0; q < kLambdaLevels.size(); ++q) {
    lambda[fmt::format("q{:.0f}", 100 * kLambdaLevels[q])] = number(f.lambda.quantiles[q]);
  }
  return {{"method", f.method},
          {"length", f.length},
          {"layer", f.layer},
          {"rows", f.rows},
          {"entropy", number(f.mean.entropy)},
          {"uniform_entropy", number(f.mean.uniform)},
          {"distance", number(f.mean.distance)},
          {"diagonal", number(f.mean.diagonal)},
          {"lambda", lambda},
          {"random_angles", f.random_angles},
          {"attended_angles", f.attended_angles}};
}

void write_h5(const Inspection& in, const std::string& path) {
  h5::Writer file(path);
  const auto methods = static_cast<std::int64_t>(in.methods.size()), lengths = static_cast<std::int64_t>(in.lengths.size());
  const std::vector<std::int64_t> shape{methods, lengths, in.layers};
  const auto write = [&](const char* name, auto value, std::vector<std::int64_t> inner = {}) {
    std::vector<double> values;
    for (const LayerFigures& figures : in.figures) value(figures, values);
    std::vector<std::int64_t> full = shape;
    full.insert(full.end(), inner.begin(), inner.end());
    file.write<double>(name, values, full);
  };
  const auto append = [](std::vector<double>& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  const auto bins = static_cast<std::int64_t>(kAngleBins);
  file.write_strings("/methods", in.methods);
  file.write<std::int64_t>("/lengths", in.lengths, {lengths});
  write("/entropy", [](const LayerFigures& f, auto& to) { to.push_back(f.mean.entropy); });
  write("/uniform_entropy", [](const LayerFigures& f, auto& to) { to.push_back(f.mean.uniform); });
  write("/distance", [](const LayerFigures& f, auto& to) { to.push_back(f.mean.distance); });
  write("/diagonal", [](const LayerFigures& f, auto& to) { to.push_back(f.mean.diagonal); });
  write("/lambda/mean", [](const LayerFigures& f, auto& to) { to.push_back(f.lambda.mean); });
  write("/lambda/tied", [](const LayerFigures& f, auto& to) { to.push_back(f.lambda.tied); });
  write("/lambda/quantiles", [&](const LayerFigures& f, auto& to) { append(to, f.lambda.quantiles); }, {5});
  file.write<double>("/lambda/levels", kLambdaLevels, {5});
  write("/angles/random", [&](const LayerFigures& f, auto& to) { append(to, f.random_angles); }, {bins});
  write("/angles/attended", [&](const LayerFigures& f, auto& to) { append(to, f.attended_angles); }, {bins});
  for (std::size_t l = 0; l < in.lengths.size(); ++l) {
    std::vector<float> cells;
    for (std::size_t m = 0; m < in.methods.size(); ++m) {
      for (std::size_t layer = 0; layer < static_cast<std::size_t>(in.layers); ++layer) {
        const std::vector<float>& map = in.at(m, l, layer).heatmap.cells;
        cells.insert(cells.end(), map.begin(), map.end());
      }
    }
    const Heatmap& first = in.at(0, l, 0).heatmap;
    file.write<float>(fmt::format("/heatmaps/{}", in.lengths[l]), cells, {methods, in.layers, first.rows, first.columns});
  }
  file.attribute("/", "kind", std::string("inspection"));
  file.attribute("/", "L_train", in.train_length);
  file.attribute("/", "sequences", in.sequences);
  file.publish();
}

/// The layers of a picture: all, or evenly spaced ones with the first and the last.
std::vector<std::size_t> drawn_layers(const Inspection& in) {
  const auto layers = static_cast<std::size_t>(in.layers), count = std::min(layers, kMostDrawn);
  std::vector<std::size_t> drawn;
  for (std::size_t n = 0; n < count; ++n) drawn.push_back(count == 1 ? 0 : n * (layers - 1) / (count - 1));
  return drawn;
}

/// A panel a layer, a line a method: a figure against length.
template <class F>
std::vector<Plot> by_length(const Inspection& in, const char* label, F figure) {
  std::vector<Plot> panels;
  for (const std::size_t layer : drawn_layers(in)) {
    Plot plot;
    plot.title = fmt::format("layer {}", layer);
    plot.x_label = "length, tokens";
    plot.y_label = label;
    plot.from_zero = true;
    for (std::size_t m = 0; m < in.methods.size(); ++m) {
      PlotSeries series{in.methods[m], {}};
      for (std::size_t l = 0; l < in.lengths.size(); ++l) {
        const double y = figure(in.at(m, l, layer));
        series.points.push_back({static_cast<double>(in.lengths[l]), y, std::nan(""), std::nan("")});
      }
      plot.series.push_back(std::move(series));
    }
    panels.push_back(std::move(plot));
  }
  return panels;
}

std::vector<Plot> angle_panels(const Inspection& in) {
  std::vector<Plot> panels;
  const auto series_of = [](const std::string& label, const std::array<double, kAngleBins>& shares) {
    constexpr double kWidth = 180.0 / static_cast<double>(kAngleBins);
    PlotSeries series{label, {}};
    for (std::size_t bin = 0; bin < kAngleBins; ++bin) {
      series.points.push_back({(static_cast<double>(bin) + 0.5) * kWidth, 100 * shares[bin], std::nan(""), std::nan("")});
    }
    return series;
  };
  for (const std::size_t layer : drawn_layers(in)) {
    Plot plot;
    plot.title = fmt::format("layer {}, length {}", layer, in.lengths.back());
    plot.x_label = "angle between q and k, degrees";
    plot.y_label = "share of pairs, %";
    plot.log_x = false;
    plot.from_zero = true;
    for (std::size_t m = 0; m < in.methods.size(); ++m) {
      const LayerFigures& figures = in.at(m, in.lengths.size() - 1, layer);
      plot.series.push_back(series_of(in.methods[m] + ", attended", figures.attended_angles));
      plot.series.push_back(series_of(in.methods[m] + ", random", figures.random_angles));
    }
    panels.push_back(std::move(plot));
  }
  return panels;
}

}  // namespace

std::string text_table(const Inspection& in) {
  std::size_t width = 8;
  for (const std::string& method : in.methods) width = std::max(width, method.size() + 9);
  std::string out =
      fmt::format("{}: {} sequences of {}\n\n{:{}}", in.model, in.sequences, in.source, "entropy, nats", width + 4);
  for (const std::int64_t length : in.lengths) out += fmt::format("{:>8}", length);
  out += '\n';
  for (std::size_t m = 0; m < in.methods.size(); ++m) {
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(in.layers); ++layer) {
      out += fmt::format("{:{}}", fmt::format("{} layer {}", in.methods[m], layer), width + 4);
      for (std::size_t l = 0; l < in.lengths.size(); ++l) out += fmt::format("{:8.3f}", in.at(m, l, layer).mean.entropy);
      out += '\n';
    }
  }
  return out;
}

std::string csv_table(const Inspection& in) {
  std::string out =
      "model,method,length,layer,rows,entropy,uniform_entropy,distance,diagonal,lambda_mean,lambda_tied,lambda_q10,lambda_q25,"
      "lambda_q50,lambda_q75,lambda_q90\n";
  for (const LayerFigures& f : in.figures) {
    out += fmt::format("{},{},{},{},{}", csv_field(in.model), csv_field(f.method), f.length, f.layer, f.rows);
    for (const double value :
         {f.mean.entropy, f.mean.uniform, f.mean.distance, f.mean.diagonal, f.lambda.mean, f.lambda.tied}) {
      out += "," + csv_number(value);
    }
    for (const double value : f.lambda.quantiles) out += "," + csv_number(value);
    out += '\n';
  }
  return out;
}

Json to_json(const Inspection& in) {
  Json out{{"model", in.model},
           {"source", in.source},
           {"train_length", in.train_length > 0 ? Json(in.train_length) : Json(nullptr)},
           {"sequences", in.sequences}};
  out["results"] = Json::array();
  for (const LayerFigures& figures : in.figures) out["results"].push_back(json_of(figures));
  return out;
}

void write_inspection(const Inspection& in, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check(!error, ExitCode::kIo, "{}: cannot make this directory: {}", directory, error.message());
  const auto file = [&](const char* name) { return (std::filesystem::path(directory) / name).string(); };
  write_h5(in, file("inspect.h5"));
  write_file(file("inspect.csv"), csv_table(in));
  write_file(file("inspect.json"), to_json(in).dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
  draw_panels(by_length(in, "mean row entropy, nats", [](const LayerFigures& f) { return f.mean.entropy; }),
              file("entropy.svg"), file("entropy.png"));
  draw_panels(by_length(in, "mean distance attended, tokens", [](const LayerFigures& f) { return f.mean.distance; }),
              file("distance.svg"), file("distance.png"));
  draw_panels(angle_panels(in), file("angles.svg"), file("angles.png"));
  const std::vector<std::size_t> layers = drawn_layers(in);
  std::vector<HeatmapPanel> maps;
  for (std::size_t m = 0; m < in.methods.size(); ++m) {
    for (const std::size_t layer : layers) {
      maps.push_back({fmt::format("{}, layer {}", in.methods[m], layer), &in.at(m, in.lengths.size() - 1, layer).heatmap,
                      in.lengths.back()});
    }
  }
  draw_heatmaps(maps, static_cast<std::int64_t>(layers.size()), fmt::format("{} at length {}", in.model, in.lengths.back()),
                file("heatmap.svg"), file("heatmap.png"));
}

}  // namespace gau
