// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a comparison found: every run of every cell, their means, and the files made of them. Nothing in it depends on when or where it was
// run, or how many runs went on side by side; docs/compare.md describes the formats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "starling/lab/grid.h"

namespace starling::lab {

// One run that has ended.
struct RunOutcome {
  std::uint64_t seed = 0;
  std::string path{};    // Below the comparison's folder.
  std::string ending{};  // "finished", "diverged" or "failed".
  std::string reason{};  // Why it diverged, failed or counts as not converged.
  bool converged = false;
  std::map<std::string, std::optional<double>> values{};  // Of value_names(); what is not known has none.
  std::string weights_sha256{};

  bool failed() const { return ending == "failed"; }
};

// Of one value over the seeds of a cell. Only runs that converged count.
struct Summary {
  std::size_t count = 0;
  std::optional<double> mean{};
  std::optional<double> deviation{};  // Of the sample, with n - 1; nothing for a single run.
  std::optional<double> minimum{};
  std::optional<double> maximum{};
  std::size_t not_converged = 0;
  std::size_t failed = 0;
};

struct CellOutcome {
  std::vector<std::string> labels{};
  std::vector<RunOutcome> runs{};  // Those that have ended, in the order of the seeds.

  Summary summary(const std::string& value) const;
};

struct ComparisonResult {
  std::string title{};
  std::string command{};  // That repeats it.
  std::vector<Axis> axes{};
  std::vector<std::string> rows{};
  std::vector<std::string> columns{};
  std::vector<std::uint64_t> seeds{};
  std::vector<std::string> values{};
  std::vector<CellOutcome> cells{};  // As in the grid.

  std::size_t runs() const;    // That have ended; likewise below.
  std::size_t failed() const;  // With an error: no results.
};

// Reads result.json of a run. Nothing if the text is no such object, or of a run that has not ended. A run that diverged, or whose model
// gives one and the same answer for the whole test set, has not converged.
std::optional<RunOutcome> read_outcome(const std::string& result_json);

// The contents of comparison.json and of comparison.csv.
std::string to_json(const ComparisonResult& result);
std::string to_csv(const ComparisonResult& result);

// A field of a CSV file (RFC 4180): in quotes where it must be.
std::string csv_field(const std::string& text);

}  // namespace starling::lab
