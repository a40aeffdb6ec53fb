// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A line plot as a self-contained SVG: no scripts, no fonts or styles from elsewhere; opens in every browser, and is the same bytes on
// every machine. The legend stands below the axes, so that it never covers a line.
//
//   LinePlot plot{.title = "loss", .x_label = "epoch", .y_label = "test loss", .log_y = true};
//   plot.series.push_back({.name = "sync", .points = {{1, 0.8}, {2, 0.6}}});
//   write_file_atomically("loss.svg", to_svg(plot), "plot");
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace starling::lab {

struct PlotSeries {
  std::string name{};
  std::vector<std::pair<double, double>> points{};  // (x, y), drawn in this order.
  bool dashed = false;
  bool markers = false;  // A dot at every point, where there are few enough to tell them apart.
};

struct LinePlot {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  bool log_y = false;
  std::vector<PlotSeries> series{};
};

// Points that cannot be drawn (not finite; with log_y, y <= 0) interrupt their line. Texts may contain any characters.
std::string to_svg(const LinePlot& plot);

}  // namespace starling::lab
