// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/run/run_config.h"
#include "starling/run/toml_table.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json parse(const std::string& path, std::string_view what) {
  Json json = Json::parse(read_file(path, what), nullptr, false);
  if (json.is_discarded()) throw UserError(fmt::format("the {} '{}' is not JSON: it is damaged, or of another program", what, path));
  return json;
}

void require(bool condition, const std::string& path, std::string_view expected) {
  if (!condition) throw UserError(fmt::format("'{}' is of another shape than Starling writes: {}", path, expected));
}

bool is_number_or_null(const Json& json) { return json.is_number() || json.is_null(); }

bool is_number_list(const Json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& element) { return element.is_number(); });
}

bool is_text_list(const Json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& element) { return element.is_string(); });
}

// What a POSIX shell takes as one word.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=+:,@%-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char character : text) quoted += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return quoted + "'";
}

// Also where the text is empty.
std::string text_or(const Json& json, const char* key, const std::string& otherwise) {
  const bool given = json.contains(key) && json[key].is_string() && !json[key].get_ref<const std::string&>().empty();
  return given ? json[key].get<std::string>() : otherwise;
}

bool is_number_text(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "async, workers 2, labels, seed 1": a number alone does not say of what it is.
std::string name_of(const Json& axes, const Json& labels, const Json& run) {
  std::string name;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string label = labels[i].get<std::string>();
    name +=
        fmt::format("{}{}{}, ", is_number_text(label) ? axes[i]["name"].get<std::string>() : "", is_number_text(label) ? " " : "", label);
  }
  return fmt::format("{}seed {}", name, run.contains("seed") ? dump(run["seed"]) : "?");
}

// The canonical path of a run that a landscape names, or "". The name is relative to where the landscape was made: here, or in one of the
// folders in which the landscape lies.
std::string find_run(const std::string& landscape_path, const std::string& name) {
  if (name.empty()) return "";
  if (exists(name + "/config.toml")) return canonical(name);
  for (fs::path folder = canonical(landscape_path); folder.has_relative_path(); folder = folder.parent_path()) {
    if (const std::string run = (folder / name).string(); exists(run + "/config.toml")) return canonical(run);
  }
  return "";
}

// Keys and values of a run that sets nothing. Those of a fabric are written only for the fabric that is chosen.
std::set<std::pair<std::string, std::string>> defaults_for(const run::RunConfig& config) {
  run::RunConfig defaults;
  const auto plain = run::TomlTable::parse(run::to_toml(defaults), "the defaults").flattened();
  std::set<std::pair<std::string, std::string>> entries(plain.begin(), plain.end());
  defaults.fabric.name = config.fabric.name;
  const auto of_fabric = run::TomlTable::parse(run::to_toml(defaults), "the defaults").flattened();
  for (const auto& entry : of_fabric) {
    if (entry.first != "fabric.name") entries.insert(entry);
  }
  return entries;
}

// The page computes with these parts of result.json; the rest it shows as it is.
void check_result(const Json& result, const std::string& path) {
  require(result.is_object(), path, "it must be an object");
  if (const auto histograms = result.find("histograms"); histograms != result.end() && !histograms->is_null()) {
    require(histograms->is_object(), path, "histograms must be an object");
    for (const Json& histogram : *histograms) {
      require(histogram.is_array(), path, "a histogram must be a list");
      for (const Json& pair : histogram) require(is_number_list(pair) && pair.size() == 2, path, "a histogram has [value, count] pairs");
    }
  }
  if (const auto classes = result.find("classes"); classes != result.end() && !classes->is_null()) {
    require(classes->is_object() && classes->contains("confusion") && classes->at("confusion").is_array(), path,
            "classes must have a confusion matrix");
    const Json& confusion = classes->at("confusion");
    for (const Json& row : confusion) {
      require(is_number_list(row) && row.size() == confusion.size(), path, "the confusion matrix must be square");
    }
    require(!classes->contains("names") || is_text_list(classes->at("names")), path, "the names of classes must be texts");
  }
  if (const auto workers = result.find("workers_time"); workers != result.end()) {
    require(workers->is_array(), path, "workers_time must be a list");
    for (const Json& worker : *workers) {
      require(worker.is_object(), path, "workers_time must hold objects");
      for (const char* key : {"compute_seconds", "waiting_seconds", "communication_seconds"}) {
        require(worker.contains(key) && worker[key].is_number(), path, fmt::format("a worker's time must have {}", key));
      }
    }
  }
}

}  // namespace

std::string canonical(const std::string& path) {
  std::error_code error;
  const fs::path result = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : result.string();
}

std::vector<std::string> shown_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string inside = entry->path().string();
    if (has_run(inside) || has_comparison(inside) || has_landscape(inside)) names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string json_string(const std::string& text) { return dump(Json(text)); }

bool has_run(const std::string& path) { return exists(path + "/config.toml"); }
bool has_comparison(const std::string& path) { return exists(path + "/comparison.json"); }
bool has_landscape(const std::string& path) { return exists(path + "/landscape.json"); }

RunFollower::RunFollower(std::string path, std::string name, std::size_t points)
    : path_(std::move(path)),
      name_(std::move(name)),
      points_(points),
      steps_(points, {Field::loss, Field::gradient_norm, Field::weight_norm, Field::staleness}),
      epochs_(points, {Field::train_loss, Field::test_loss, Field::test_accuracy, Field::weight_norm}) {}

bool RunFollower::read() {
  const bool config = read_config();
  const bool metrics = read_metrics();
  return read_result() || metrics || config;
}

bool RunFollower::read_config() {
  std::string text = read_file(path_ + "/config.toml", "configuration of the run");
  if (text == config_text_) return false;
  // Read and written again, so that a run of an older version shows the keys that came later with their defaults.
  const run::RunConfig config = run::parse_run_config(text, path_ + "/config.toml");
  config_text_ = std::move(text);
  virtual_time_ = config.fabric.name == "sim";
  Json entries = Json::array();
  Json changed = Json::array();
  const auto defaults = defaults_for(config);
  const auto flattened = run::TomlTable::parse(run::to_toml(config), path_ + "/config.toml").flattened();
  for (const auto& entry : flattened) {
    entries.push_back(Json::array({entry.first, entry.second}));
    if (!defaults.contains(entry)) changed.push_back(entry.first);
  }
  config_json_ = dump(entries);
  changed_json_ = dump(changed);
  return true;
}

void RunFollower::start_again() { *this = RunFollower(path_, name_, points_); }

bool RunFollower::read_metrics() {
  const std::string path = path_ + "/metrics.jsonl";
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) return false;
  if (size == metrics_bytes_) return false;
  if (size < metrics_bytes_) {  // A resumed run does some steps again, and cuts what it had recorded of them.
    start_again();
    read_config();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("cannot read the metrics '{}'", path));
  file.seekg(static_cast<std::streamoff>(metrics_bytes_));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    metrics_bytes_ += line.size() + 1;
    ++metrics_lines_;
    read_line(line);
  }
  return true;
}

void RunFollower::read_line(const std::string& line) {
  const auto fail = [this](std::string_view reason) {
    throw UserError(fmt::format("{}/metrics.jsonl:{}: {}", path_, metrics_lines_, reason));
  };
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("this line is no JSON object: the file is damaged");
  const std::string kind = text_or(json, "kind", "");
  if (kind != "step" && kind != "epoch") fail("kind is neither step nor epoch");
  CourseRecord record;
  for (std::size_t i = 0; i < kFieldNames.size(); ++i) {
    const auto found = json.find(std::string(kFieldNames[i]));
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_number()) fail(fmt::format("{} is no number", kFieldNames[i]));
    record.values[i] = found->get<double>();
  }
  (kind == "step" ? steps_ : epochs_).add(record);
}

bool RunFollower::read_result() {
  const std::string path = path_ + "/result.json";
  std::string text = "null";
  if (exists(path)) {
    const Json json = parse(path, "result of the run");
    check_result(json, path);
    text = dump(json);
  }
  if (text == result_text_) return false;
  result_text_ = std::move(text);
  return true;
}

std::string RunFollower::to_json() const {
  const std::string command = fmt::format("starling train --config {}", shell_word(path_ + "/config.toml"));
  return fmt::format(
      R"({{"name":{},"path":{},"command":{},"virtual_time":{},"config":{},"changed":{},"steps":{},"epochs":{},"result":{}}})",
      json_string(name_), json_string(canonical(path_)), json_string(command), virtual_time_, config_json_, changed_json_,
      lab::to_json(steps_.records()), lab::to_json(epochs_.records()), result_text_);
}

ComparisonFile read_comparison(const std::string& path, const std::string& prefix) {
  const std::string file = path + "/comparison.json";
  Json json = parse(file, "comparison");
  require(json.is_object() && json.contains("axes") && json["axes"].is_array(), file, "axes must be a list");
  require(json.contains("cells") && json["cells"].is_array(), file, "cells must be a list");
  for (const Json& axis : json["axes"]) {
    require(axis.is_object() && axis.contains("name") && axis["name"].is_string(), file, "an axis must have a name");
  }
  ComparisonFile comparison{.title = text_or(json, "title", path)};
  for (Json& cell : json["cells"]) {
    require(cell.is_object() && cell.contains("labels") && is_text_list(cell["labels"]) && cell["labels"].size() == json["axes"].size(),
            file, "a cell must have one label per axis");
    require(cell.contains("runs") && cell["runs"].is_array(), file, "a cell must have a list of runs");
    require(cell.contains("summary") && cell["summary"].is_object(), file, "a cell must have a summary");
    for (const Json& value : cell["summary"]) {
      require(value.is_object() && (!value.contains("mean") || is_number_or_null(value["mean"])), file, "a summary must hold numbers");
    }
    for (Json& run : cell["runs"]) {
      require(run.is_object() && run.contains("path") && run["path"].is_string(), file, "a run of a cell must have a path");
      const std::string name = prefix + name_of(json["axes"], cell["labels"], run);
      const std::string run_path = path + "/" + run["path"].get<std::string>();
      run["name"] = name;
      run["path"] = canonical(run_path);
      if (has_run(run_path)) comparison.runs.push_back({.path = run_path, .name = name});
    }
  }
  json["path"] = canonical(path);
  comparison.json = dump(json);
  return comparison;
}

LandscapeFile read_landscape(const std::string& path) {
  const std::string file = path + "/landscape.json";
  Json json = parse(file, "landscape");
  require(json.is_object(), file, "it must be an object");
  for (const char* key : {"x", "y"}) {
    require(json.contains(key) && is_number_list(json[key]) && json[key].size() >= 2, file,
            fmt::format("{} must be a list of numbers", key));
  }
  require(json.contains("grid") && json["grid"].is_array() && json["grid"].size() == json["y"].size(), file,
          "grid must have one row for each y");
  for (const Json& row : json["grid"]) {
    require(row.is_array() && row.size() == json["x"].size() && std::all_of(row.begin(), row.end(), is_number_or_null), file,
            "a row of the grid must have one number for each x");
  }
  if (!json.contains("trajectories")) json["trajectories"] = Json::array();
  require(json["trajectories"].is_array(), file, "trajectories must be a list");
  for (Json& trajectory : json["trajectories"]) {
    require(trajectory.is_object() && trajectory.contains("points") && trajectory["points"].is_array(), file,
            "a trajectory must have points");
    for (const Json& point : trajectory["points"]) {
      require(point.is_object() && point.contains("x") && point["x"].is_number() && point.contains("y") && point["y"].is_number() &&
                  point.contains("loss") && is_number_or_null(point["loss"]),
              file, "a point must have x, y and loss");
    }
    if (const std::string run = find_run(path, text_or(trajectory, "name", "")); !run.empty()) trajectory["path"] = run;
  }
  json["path"] = canonical(path);
  return {.title = text_or(json, "title", path), .json = dump(json)};
}

}  // namespace starling::lab
