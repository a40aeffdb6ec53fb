// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "starling/base/portable_math.h"
#include "starling/lab/escaped_markup.h"

namespace starling::lab {
namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 84;
constexpr double kRight = 24;
constexpr double kTop = 52;
constexpr double kPlotHeight = 360;
constexpr double kLegendRow = 20;
constexpr std::size_t kMostMarkers = 60;
constexpr std::size_t kMostPoints = 1000;

// Colours of Okabe and Ito, which people who see colours differently can tell apart too.
constexpr std::array<const char*, 6> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

// The C library's own differs in its last bit from processor to processor.
double log10_of(double x) {
  constexpr double kLog10 = 2.302585092994046;
  return portable_log(x) / kLog10;
}

// The largest font size up to `standard` at which the text has room: a letter is about 0.62 of it wide, in bold.
std::string font_size(const std::string& content, double standard, double room) {
  const auto is_start = [](char character) { return (static_cast<unsigned char>(character) & 0xc0U) != 0x80U; };
  const auto letters = static_cast<double>(std::count_if(content.begin(), content.end(), is_start));
  return fmt::format(" font-size=\"{:.1f}\"", std::min(standard, room / (0.62 * std::max(letters, 1.0))));
}

struct Range {
  double low = 0;
  double high = 1;
};

// An axis on a linear scale; a logarithmic one is this on the logarithms.
struct Axis {
  Range range{};
  std::vector<double> ticks{};
};

// The first of 1, 2, 5, 10, 20, 50, … times `unit`, a power of ten, that is at least `least`. A unit of 0 stands for one that is small
// enough.
double round_stride(double least, double unit) {
  double stride = unit > 0 ? unit : 1;
  while (unit == 0 && stride > least) stride /= 10;
  while (true) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (stride * factor >= least) return stride * factor;
    }
    stride *= 10;
  }
}

// The stride is a multiple of `smallest_unit` where that is not 0: exponents are whole numbers.
Axis make_axis(Range data, double smallest_unit) {
  if (!(data.high > data.low)) data = {data.low - 0.5, data.high + 0.5};
  constexpr double kTicks = 8;
  const double least = (data.high - data.low) / kTicks;
  const double stride = round_stride(least, smallest_unit);
  Axis axis;
  const double first = std::floor(data.low / stride + 1e-9);
  const double last = std::ceil(data.high / stride - 1e-9);
  axis.range = {first * stride, last * stride};
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * stride);
  return axis;
}

class Drawing {
 public:
  explicit Drawing(const LinePlot& plot) : plot_(plot) {
    Range x{HUGE_VAL, -HUGE_VAL};
    Range y{HUGE_VAL, -HUGE_VAL};
    for (const PlotSeries& series : plot.series) {
      for (const auto& point : series.points) {
        if (!drawable(point)) continue;
        x = {std::min(x.low, point.first), std::max(x.high, point.first)};
        y = {std::min(y.low, height_of(point)), std::max(y.high, height_of(point))};
      }
    }
    if (x.low > x.high) x = y = {0, 1};
    x_ = make_axis(x, 0);
    // The last tick may lie far beyond the data; the axis need not.
    x_.range = x.high > x.low ? x : x_.range;
    y_ = make_axis(y, plot.log_y ? 1 : 0);
  }

  std::string svg() {
    const double height = kTop + kPlotHeight + 62 + kLegendRow * static_cast<double>(plot_.series.size()) + 8;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n",
        kWidth, height);
    text(kLeft, 28, "start", plot_.title, font_size(plot_.title, 16, kWidth - kLeft - kRight) + " font-weight=\"bold\"");
    draw_axes();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) draw_series(plot_.series[i], kColours[i % kColours.size()]);
    for (std::size_t i = 0; i < plot_.series.size(); ++i) draw_legend(i);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  bool drawable(const std::pair<double, double>& point) const {
    return std::isfinite(point.first) && std::isfinite(point.second) &&
           (!plot_.log_y || point.second >= std::numeric_limits<double>::min());
  }
  double height_of(const std::pair<double, double>& point) const { return plot_.log_y ? log10_of(point.second) : point.second; }
  double x_at(double x) const { return kLeft + (x - x_.range.low) / (x_.range.high - x_.range.low) * (kWidth - kLeft - kRight); }
  double y_at(double y) const { return kTop + kPlotHeight - (y - y_.range.low) / (y_.range.high - y_.range.low) * kPlotHeight; }

  void text(double x, double y, const char* anchor, const std::string& content, const std::string& more = "") {
    fmt::format_to(std::back_inserter(out_), "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                   escaped_markup(content));
  }
  void line(double x1, double y1, double x2, double y2, const std::string& style) {
    fmt::format_to(std::back_inserter(out_), "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
  }

  void draw_axes() {
    const double bottom = kTop + kPlotHeight;
    for (const double tick : y_.ticks) {
      line(kLeft, y_at(tick), kWidth - kRight, y_at(tick), "stroke=\"#ddd\"");
      text(kLeft - 8, y_at(tick) + 4, "end", plot_.log_y ? fmt::format("1e{:g}", tick) : fmt::format("{:.6g}", tick));
    }
    for (const double tick : x_.ticks) {
      // Tolerant of the rounding of the data's ends only.
      const double slack = 1e-9 * (x_.range.high - x_.range.low);
      if (tick < x_.range.low - slack || tick > x_.range.high + slack) continue;
      line(x_at(tick), bottom, x_at(tick), bottom + 5, "stroke=\"#444\"");
      text(x_at(tick), bottom + 20, "middle", fmt::format("{:.6g}", tick));
    }
    line(kLeft, bottom, kWidth - kRight, bottom, "stroke=\"#444\"");
    line(kLeft, kTop, kLeft, bottom, "stroke=\"#444\"");
    text((kLeft + kWidth - kRight) / 2, bottom + 42, "middle", plot_.x_label, font_size(plot_.x_label, 13, kWidth - kLeft - kRight));
    const double middle = kTop + kPlotHeight / 2;
    text(20, middle, "middle", plot_.y_label,
         fmt::format("{} transform=\"rotate(-90 20 {:.1f})\"", font_size(plot_.y_label, 13, kPlotHeight), middle));
  }

  static std::string stroke(const PlotSeries& series, const char* colour) {
    return fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, series.dashed ? " stroke-dasharray=\"7 5\"" : "");
  }

  void draw_series(const PlotSeries& series, const char* colour) {
    const std::size_t stride = series.points.size() / kMostPoints + 1;
    std::string path;
    bool joined = false;
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      if (i % stride != 0 && i + 1 != series.points.size()) continue;
      const auto& point = series.points[i];
      const bool drawn = drawable(point);
      if (drawn) fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", joined ? "L" : "M", x_at(point.first), y_at(height_of(point)));
      joined = drawn;
    }
    fmt::format_to(std::back_inserter(out_), "<path d=\"{}\" fill=\"none\" {} stroke-linejoin=\"round\"/>\n", path, stroke(series, colour));
    if (!series.markers || series.points.size() > kMostMarkers) return;
    for (const auto& point : series.points) {
      if (!drawable(point)) continue;
      fmt::format_to(std::back_inserter(out_), "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x_at(point.first),
                     y_at(height_of(point)), colour);
    }
  }

  void draw_legend(std::size_t index) {
    const double y = kTop + kPlotHeight + 68 + kLegendRow * static_cast<double>(index);
    const PlotSeries& series = plot_.series[index];
    line(kLeft, y - 4, kLeft + 36, y - 4, stroke(series, kColours[index % kColours.size()]));
    text(kLeft + 46, y, "start", series.name, font_size(series.name, 13, kWidth - kLeft - kRight - 46));
  }

  const LinePlot& plot_;
  Axis x_;
  Axis y_;
  std::string out_;
};

}  // namespace

std::string to_svg(const LinePlot& plot) { return Drawing(plot).svg(); }

}  // namespace starling::lab
