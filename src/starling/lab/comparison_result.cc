// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/comparison_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace starling::lab {
namespace {

using Json = nlohmann::ordered_json;

bool is_count(std::string_view value) { return value == "bytes_sent" || value == "steps" || value == "samples"; }

// Counts as whole numbers, up to where a double has them all.
Json number(const std::string& name, const std::optional<double>& value) {
  constexpr double kExact = 9007199254740992.0;
  if (!value || !std::isfinite(*value)) return {};
  if (is_count(name) && *value >= 0 && *value < kExact) return static_cast<std::uint64_t>(*value);
  return *value;
}

// The answer that a model gives to everything, if it does.
std::optional<std::string> only_answer(const nlohmann::json& classes) {
  if (!classes.is_object()) return std::nullopt;
  const auto confusion = classes.at("confusion").get<std::vector<std::vector<std::uint64_t>>>();
  std::vector<std::uint64_t> answers;
  for (const std::vector<std::uint64_t>& row : confusion) {
    answers.resize(std::max(answers.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) answers[i] += row[i];
  }
  const auto given = [](std::uint64_t count) { return count > 0; };
  if (answers.size() < 2 || std::count_if(answers.begin(), answers.end(), given) != 1) return std::nullopt;
  const auto index = static_cast<std::size_t>(std::find_if(answers.begin(), answers.end(), given) - answers.begin());
  const auto names = classes.at("names").get<std::vector<std::string>>();
  return index < names.size() ? names[index] : std::to_string(index);
}

std::optional<double> number_at(const nlohmann::json& json, const nlohmann::json::json_pointer& place) {
  if (!json.contains(place) || !json.at(place).is_number()) return std::nullopt;
  return json.at(place).get<double>();
}

RunOutcome outcome_of(const nlohmann::json& json) {
  RunOutcome outcome;
  outcome.ending = json.at("ending").get<std::string>();
  outcome.reason = json.value("reason", "");
  outcome.weights_sha256 = json.value("weights_sha256", "");
  outcome.seed = json.at("seed").get<std::uint64_t>();
  for (const std::string& name : value_names()) {
    const std::string place = name == "staleness" ? "/staleness/version/mean" : fmt::format("/{}", name);
    outcome.values[name] = number_at(json, nlohmann::json::json_pointer(place));
  }
  if (!json.value("balanced", true)) {
    outcome.ending = "failed";
    outcome.reason = "the books do not balance";
    return outcome;
  }
  outcome.converged = outcome.ending == "finished";
  const std::optional<std::string> only = only_answer(json.value("classes", nlohmann::json()));
  if (outcome.converged && only) {
    outcome.converged = false;
    outcome.reason = fmt::format("the answer is '{}' for the whole test set", *only);
  }
  return outcome;
}

Json to_json(const std::string& name, const Summary& summary) {
  Json json{{"mean", number("", summary.mean)},
            {"deviation", number("", summary.deviation)},
            {"minimum", number(name, summary.minimum)},
            {"maximum", number(name, summary.maximum)},
            {"count", summary.count},
            {"not_converged", summary.not_converged},
            {"failed", summary.failed}};
  return json;
}

Json to_json(const RunOutcome& run) {
  Json json{{"seed", run.seed}, {"path", run.path}, {"ending", run.ending}, {"converged", run.converged}, {"reason", run.reason}};
  for (const std::string& name : value_names()) {
    const auto found = run.values.find(name);
    json[name] = found == run.values.end() ? Json() : number(name, found->second);
  }
  json["weights_sha256"] = run.weights_sha256;
  return json;
}

}  // namespace

Summary CellOutcome::summary(const std::string& value) const {
  Summary summary;
  std::vector<double> numbers;
  for (const RunOutcome& run : runs) {
    if (run.failed()) {
      ++summary.failed;
    } else if (!run.converged) {
      ++summary.not_converged;
    } else if (const auto found = run.values.find(value); found != run.values.end() && found->second && std::isfinite(*found->second)) {
      numbers.push_back(*found->second);
    }
  }
  summary.count = numbers.size();
  if (numbers.empty()) return summary;
  const auto count = static_cast<double>(numbers.size());
  double sum = 0;
  for (const double number : numbers) sum += number;
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  const double mean = *least == *most ? *least : sum / count;  // Equal numbers have no deviation, whatever rounding makes of their sum.
  summary.mean = mean;
  summary.minimum = *least;
  summary.maximum = *most;
  if (numbers.size() < 2) return summary;
  double squares = 0;
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

std::size_t ComparisonResult::runs() const {
  std::size_t count = 0;
  for (const CellOutcome& cell : cells) count += cell.runs.size();
  return count;
}

std::size_t ComparisonResult::failed() const {
  std::size_t count = 0;
  for (const CellOutcome& cell : cells) {
    count +=
        static_cast<std::size_t>(std::count_if(cell.runs.begin(), cell.runs.end(), [](const RunOutcome& run) { return run.failed(); }));
  }
  return count;
}

std::optional<RunOutcome> read_outcome(const std::string& result_json) {
  try {
    RunOutcome outcome = outcome_of(nlohmann::json::parse(result_json));
    if (outcome.ending == "interrupted") return std::nullopt;
    return outcome;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string to_json(const ComparisonResult& result) {
  Json json{{"title", result.title}, {"command", result.command}, {"axes", Json::array()}};
  for (const Axis& axis : result.axes) json["axes"].push_back({{"name", axis.name}, {"labels", axis.labels}});
  json["rows"] = result.rows;
  json["columns"] = result.columns;
  json["seeds"] = result.seeds;
  json["values"] = result.values;
  json["cells"] = Json::array();
  for (const CellOutcome& cell : result.cells) {
    Json runs = Json::array();
    for (const RunOutcome& run : cell.runs) runs.push_back(to_json(run));
    Json summaries = Json::object();
    for (const std::string& name : value_names()) summaries[name] = to_json(name, cell.summary(name));
    json["cells"].push_back({{"labels", cell.labels}, {"runs", runs}, {"summary", summaries}});
  }
  return fmt::format("{}\n", json.dump(1, ' ', false, Json::error_handler_t::replace));
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"') result += '"';
    result += character;
  }
  return result + '"';
}

std::string to_csv(const ComparisonResult& result) {
  std::string text;
  for (const Axis& axis : result.axes) text += fmt::format("{},", csv_field(axis.name));
  text += "seed,path,ending,converged,reason";
  for (const std::string& name : value_names()) text += fmt::format(",{}", name);
  text += ",weights_sha256\r\n";
  for (const CellOutcome& cell : result.cells) {
    for (const RunOutcome& run : cell.runs) {
      for (const std::string& label : cell.labels) text += fmt::format("{},", csv_field(label));
      text += fmt::format("{},{},{},{},{}", run.seed, csv_field(run.path), run.ending, run.converged, csv_field(run.reason));
      for (const std::string& name : value_names()) {
        const auto found = run.values.find(name);
        const Json value = found == run.values.end() ? Json() : number(name, found->second);
        text += fmt::format(",{}", value.is_null() ? "" : value.dump());
      }
      text += fmt::format(",{}\r\n", run.weights_sha256);
    }
  }
  return text;
}

}  // namespace starling::lab
