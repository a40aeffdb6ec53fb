// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/line_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace starling::lab {
namespace {

// The numbers in the attributes of this name, of all elements of that one.
std::vector<double> attribute(const std::string& svg, const std::string& element, const std::string& name) {
  std::vector<double> values;
  const std::string opening = "<" + element + " ";
  const std::string key = " " + name + "=\"";
  for (std::size_t begin = svg.find(opening); begin != std::string::npos; begin = svg.find(opening, begin + 1)) {
    const std::size_t found = svg.find(key, begin);
    if (found < svg.find('>', begin)) values.push_back(std::stod(svg.substr(found + key.size())));
  }
  return values;
}

LinePlot small_plot() {
  LinePlot plot{.title = "a < b & c", .x_label = "epoch", .y_label = "loss", .log_y = true};
  plot.series.push_back({.name = "measured", .points = {{0, 10}, {1, 0.5}, {2, 0.001}}, .markers = true});
  plot.series.push_back({.name = "bound", .points = {{0, 10}, {2, 1}}, .dashed = true});
  return plot;
}

TEST(LinePlot, NamesItsAxesAndSeriesAndEscapesTexts) {
  const std::string svg = to_svg(small_plot());
  EXPECT_EQ(svg.find("<svg xmlns=\"http://www.w3.org/2000/svg\""), 0);
  for (const char* part :
       {"a &lt; b &amp; c", ">epoch<", ">loss<", ">measured<", ">bound<", "stroke-dasharray", ">1e1<", ">1e-3<", "</svg>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("href"), std::string::npos) << "nothing from elsewhere";
}

TEST(LinePlot, PointsLieWhereTheirValuesAre) {
  const std::string svg = to_svg(small_plot());
  const std::vector<double> x = attribute(svg, "circle", "cx");
  const std::vector<double> y = attribute(svg, "circle", "cy");
  ASSERT_EQ(x.size(), 3);
  EXPECT_NEAR(x[1] - x[0], x[2] - x[1], 0.2);
  // Decades are equally high: from 10 to 0.5 it is 1.301 of them, from 10 to 0.001 it is 4.
  EXPECT_NEAR((y[1] - y[0]) / (y[2] - y[0]), (1 + std::log10(2)) / 4, 0.002);
}

TEST(LinePlot, TheLegendIsBelowEverythingThatIsDrawn) {
  LinePlot plot = small_plot();
  for (int i = 0; i < 8; ++i) plot.series.push_back({.name = "more", .points = {{0, 1}, {2, 2}}});
  const std::string svg = to_svg(plot);
  const std::vector<double> y = attribute(svg, "circle", "cy");
  const std::vector<double> texts = attribute(svg, "text", "y");
  const double lowest = *std::max_element(y.begin(), y.end());
  ASSERT_GT(texts.size(), 10);
  for (std::size_t i = texts.size() - 10; i < texts.size(); ++i) EXPECT_GT(texts[i], lowest + 40);
  for (std::size_t i = texts.size() - 9; i < texts.size(); ++i) EXPECT_GT(texts[i], texts[i - 1]);
  EXPECT_LT(texts.back(), attribute(svg, "svg", "height")[0]);
}

TEST(LinePlot, LongTextsAreMadeSmallerUntilTheyFit) {
  LinePlot plot = small_plot();
  EXPECT_EQ(attribute(to_svg(plot), "text", "font-size")[0], 16);
  plot.title = std::string(200, 'm');
  EXPECT_LT(attribute(to_svg(plot), "text", "font-size")[0], 6);
}

TEST(LinePlot, WhatCannotBeDrawnInterruptsTheLine) {
  LinePlot plot{.log_y = true};
  plot.series.push_back({.name = "x", .points = {{0, 1}, {1, 2}, {2, 0}, {3, NAN}, {4, HUGE_VAL}, {5, 3}, {6, 4}}, .markers = true});
  const std::string svg = to_svg(plot);
  EXPECT_EQ(attribute(svg, "circle", "cx").size(), 4);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  const std::size_t path = svg.find("<path d=\"");
  const std::string line = svg.substr(path, svg.find('/', path) - path);
  EXPECT_EQ(std::count(line.begin(), line.end(), 'M'), 2);
  EXPECT_EQ(std::count(line.begin(), line.end(), 'L'), 2);
}

TEST(LinePlot, DrawsNothingAndOnePointAndConstants) {
  for (const bool log_y : {false, true}) {
    LinePlot plot{.log_y = log_y};
    EXPECT_NE(to_svg(plot).find("</svg>"), std::string::npos);
    plot.series.push_back({.name = "empty"});
    EXPECT_NE(to_svg(plot).find("</svg>"), std::string::npos);
    plot.series.push_back({.name = "one", .points = {{3, 7}}, .markers = true});
    EXPECT_EQ(to_svg(plot).find("nan"), std::string::npos);
    plot.series.push_back({.name = "constant", .points = {{0, 7}, {1000000, 7}}});
    EXPECT_EQ(to_svg(plot).find("nan"), std::string::npos);
    plot.series.push_back({.name = "wide", .points = {{0, 1e-300}, {1e-9, 1e300}}});
    EXPECT_EQ(to_svg(plot).find("inf"), std::string::npos);
  }
}

TEST(LinePlot, ALongLineIsThinnedButKeepsItsEnds) {
  LinePlot plot;
  plot.series.push_back({.name = "long"});
  for (int i = 0; i <= 100000; ++i) plot.series[0].points.emplace_back(i, i % 7);
  const std::string svg = to_svg(plot);
  EXPECT_LT(svg.size(), 40000);
  EXPECT_NE(svg.find("L736.0 "), std::string::npos) << "the last point is at the right edge";
}

}  // namespace
}  // namespace starling::lab
