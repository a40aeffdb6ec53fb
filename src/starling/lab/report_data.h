// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the report page shows, read from the folders that runs, comparisons and landscapes leave, as JSON texts for the page's script. Every
// function throws UserError with file, and line where there is one, for what is missing, damaged or of another shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "starling/lab/report_course.h"

namespace starling::lab {

// The most points of a line of a chart, however many records a run has.
inline constexpr std::size_t kLinePoints = 2000;

// Reads a run directory, and later what has come since: a run that goes on is followed at the cost of its new records alone.
// Not thread-safe.
class RunFollower {
 public:
  // `path` is the run directory, `name` what the page calls it.
  RunFollower(std::string path, std::string name, std::size_t points = kLinePoints);

  // True if anything has changed since the last call. The first call throws UserError if there is no run. A last line without its end is
  // left for the next call; files that do not exist yet are left out.
  bool read();

  // {"name", "path", "command", "virtual_time", "config": [[key, value], ...], "changed": [key, ...], "steps": {columns}, "epochs":
  // {columns}, "result": {...} or null}. The path is canonical: the same for the same run, however it was named. "changed" has the keys
  // whose values are not the defaults.
  std::string to_json() const;

 private:
  bool read_config();
  bool read_metrics();
  bool read_result();
  void read_line(const std::string& line);
  void start_again();

  std::string path_;
  std::string name_;
  std::size_t points_;
  std::string config_text_;
  std::string config_json_;
  std::string changed_json_;
  bool virtual_time_ = false;
  std::uint64_t metrics_bytes_ = 0;  // Read so far; likewise the lines.
  std::uint64_t metrics_lines_ = 0;
  Course steps_;
  Course epochs_;
  std::string result_text_ = "null";
};

// What stands in a folder.
bool has_run(const std::string& path);
bool has_comparison(const std::string& path);
bool has_landscape(const std::string& path);

// The one path of a folder, however it was named: absolute, and without links.
std::string canonical(const std::string& path);

// The runs, comparisons and landscapes right in a folder, by name.
std::vector<std::string> shown_in(const std::string& path);

// A run of a comparison: its folder, and "async, workers 2, labels, seed 1" as its name: where a label is a number, its axis is named.
struct ComparedRun {
  std::string path{};
  std::string name{};
};
struct ComparisonFile {
  std::string title{};
  std::string json{};               // comparison.json, with "path" added, and to its runs "name", the name above; paths are canonical.
  std::vector<ComparedRun> runs{};  // Those whose folders exist.
};
// `prefix` goes before the names of the runs.
ComparisonFile read_comparison(const std::string& path, const std::string& prefix = "");

struct LandscapeFile {
  std::string title{};
  std::string json{};  // landscape.json, with "path" added, also to trajectories whose runs are found: canonical ones.
};
LandscapeFile read_landscape(const std::string& path);

// The text quoted for a JSON document; bytes that are not UTF-8 are replaced.
std::string json_string(const std::string& text);

}  // namespace starling::lab
