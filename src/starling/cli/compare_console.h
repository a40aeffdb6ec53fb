// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What `starling compare` shows while it runs, on standard error: on a terminal a line with all that is under way, and everywhere a line
// for each run that has ended.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "starling/base/stopwatch.h"
#include "starling/cli/status_line.h"
#include "starling/lab/comparison.h"

namespace starling::cli {

class CompareConsole final : public lab::ComparisonObserver {
 public:
  void run_began(const lab::PlannedRun& planned) override;
  void run_progressed(const lab::PlannedRun& planned, const run::Progress& progress) override;
  void run_ended(const lab::PlannedRun& planned, const lab::RunOutcome& outcome) override;
  void run_interrupted(const lab::PlannedRun& planned) override;
  void noted(const lab::PlannedRun& planned, const std::string& message) override;

  // What there is to do, before it begins.
  void begin(const std::vector<lab::PlannedRun>& runs);
  void clear() const { line_.clear(); }

 private:
  struct Running {
    const lab::PlannedRun* planned = nullptr;
    double begun_at = -1;  // The epoch it went on from; negative while that is not known.
    double epoch = 0;
  };

  std::string status() const;
  std::string time_left() const;
  void refresh();

  StatusLine line_{};
  Stopwatch clock_{};
  double last_refresh_ = 0;
  std::size_t all_ = 0;
  std::size_t ended_ = 0;
  double samples_left_ = 0;  // Of runs that have not ended.
  double samples_done_ = 0;  // Of runs that have, since the console began.
  std::map<std::string, Running> running_{};
};

// "87.50 %", "test loss 0.31" or how else it ended.
std::string to_text(const lab::RunOutcome& outcome);

}  // namespace starling::cli
