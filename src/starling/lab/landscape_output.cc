// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "starling/lab/landscape.h"

namespace starling::lab {
namespace {

using nlohmann::ordered_json;

// The shortest text that reads back as the same number; without the sign that a NaN may have by chance.
std::string number(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

// As RFC 4180 has it: in quotes where it must be.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"') result += '"';
    result += character;
  }
  result += '"';
  return result;
}

ordered_json to_json(const LandscapePoint& point) {
  ordered_json json{{"step", point.step}, {"epoch", point.epoch}, {"samples", point.samples}, {"x", point.x}, {"y", point.y}};
  json["loss"] = point.loss;  // Written as null where it is not finite, as those of the grid are.
  json["accuracy"] = point.accuracy ? ordered_json(*point.accuracy) : ordered_json(nullptr);
  return json;
}

// "0.3123 to 4.512", of those that are finite.
std::string range_of(const std::vector<double>& losses) {
  std::vector<double> finite;
  std::copy_if(losses.begin(), losses.end(), std::back_inserter(finite), [](double loss) { return std::isfinite(loss); });
  if (finite.empty()) return "nowhere finite";
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
  std::string text = fmt::format("{:.4g} to {:.4g}", *least, *most);
  if (finite.size() < losses.size()) text += fmt::format(", not finite at {} of {} points", losses.size() - finite.size(), losses.size());
  return text;
}

}  // namespace

std::string to_json(const Landscape& landscape) {
  ordered_json json{{"title", landscape.title},
                    {"loss", landscape.loss},
                    {"samples", landscape.samples},
                    {"weights", landscape.weights},
                    {"explained_variance", landscape.explained_variance},
                    {"x", landscape.x},
                    {"y", landscape.y},
                    {"grid", landscape.grid},
                    {"trajectories", ordered_json::array()},
                    {"notes", landscape.notes}};
  for (const LandscapeTrajectory& trajectory : landscape.trajectories) {
    ordered_json points = ordered_json::array();
    for (const LandscapePoint& point : trajectory.points) points.push_back(to_json(point));
    json["trajectories"].push_back({{"name", trajectory.name}, {"points", points}});
  }
  // Names come from the command line, and may be no UTF-8.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string grid_to_csv(const Landscape& landscape) {
  std::string csv = "x,y,loss\n";
  for (std::size_t row = 0; row < landscape.y.size(); ++row) {
    for (std::size_t column = 0; column < landscape.x.size(); ++column) {
      csv += fmt::format("{},{},{}\n", number(landscape.x[column]), number(landscape.y[row]), number(landscape.grid[row][column]));
    }
  }
  return csv;
}

std::string trajectories_to_csv(const Landscape& landscape) {
  std::string csv = "run,step,epoch,samples,x,y,loss,accuracy\n";
  for (const LandscapeTrajectory& trajectory : landscape.trajectories) {
    for (const LandscapePoint& point : trajectory.points) {
      csv += fmt::format("{},{},{},{},{},{},{},{}\n", quoted(trajectory.name), point.step, number(point.epoch), point.samples,
                         number(point.x), number(point.y), number(point.loss), point.accuracy ? number(*point.accuracy) : "");
    }
  }
  return csv;
}

std::string to_text(const Landscape& landscape) {
  std::vector<double> of_snapshots;
  for (const LandscapeTrajectory& trajectory : landscape.trajectories) {
    for (const LandscapePoint& point : trajectory.points) of_snapshots.push_back(point.loss);
  }
  std::vector<double> on_the_grid;
  for (const std::vector<double>& row : landscape.grid) on_the_grid.insert(on_the_grid.end(), row.begin(), row.end());
  const auto [first, second] = landscape.explained_variance;
  constexpr int kColumn = 24;
  return fmt::format("{:<{}}{:.2f} % and {:.2f} %, together {:.2f} %\n{:<{}}{}\n{:<{}}{}\n", "explained variance", kColumn, 100 * first,
                     100 * second, 100 * (first + second), landscape.loss + " of snapshots", kColumn, range_of(of_snapshots),
                     landscape.loss + " on the grid", kColumn, range_of(on_the_grid));
}

}  // namespace starling::lab
