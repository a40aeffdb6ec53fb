// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs all cells of a grid with all seeds, each in a run directory of its own below the folder of the comparison:
//
//   comparison.toml    the grid
//   comparison.json    what was found, also comparison.csv
//   cells/CELL/seed-1  a run directory
//
//   Comparison comparison(grid, {.directory = "runs/a", .jobs = 2, .stop = interrupted});
//   const ComparisonResult result = comparison.run();
//   if (comparison.interrupted()) ...              // A second call goes on where this one stopped, however it was stopped.
//
// In the simulator runs go on side by side and each is on one core; on threads, where time is real, one after the other. Results do not
// depend on how many go on at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/file.h"
#include "starling/base/stopwatch.h"
#include "starling/data/dataset.h"
#include "starling/lab/comparison_result.h"
#include "starling/lab/grid.h"
#include "starling/run/checkpoint.h"
#include "starling/run/trainer.h"

namespace starling::lab {

// One run of the grid.
struct PlannedRun {
  const Cell* cell = nullptr;
  run::RunConfig config{};
  std::string path{};         // Below the comparison's folder.
  std::uint64_t samples = 0;  // About so many are used: what the run takes is in proportion.
  bool ended = false;         // By an earlier call.

  std::string name() const;  // "sync, 2, dataset, seed 1".
};

// Hears of the course of a comparison, on any thread, never on two at once. Must not throw.
class ComparisonObserver {
 public:
  virtual ~ComparisonObserver() = default;
  virtual void run_began(const PlannedRun&) {}
  virtual void run_progressed(const PlannedRun&, const run::Progress&) {}  // Often.
  virtual void run_ended(const PlannedRun&, const RunOutcome&) {}
  virtual void run_interrupted(const PlannedRun&) {}
  virtual void noted(const PlannedRun&, const std::string& message) { (void)message; }  // Something unusual that is no failure.
};

struct ComparisonOptions {
  std::string directory{};
  std::string command{};           // That repeats it, for comparison.json.
  int jobs = 0;                    // How many runs go on at once in the simulator; 0: one per core.
  bool fresh = false;              // Runs whose configuration is another than before are begun anew. Otherwise they are refused.
  std::function<bool()> stop{};    // Asked often, from several threads; true ends all runs with checkpoints.
  ComparisonObserver* observer{};  // Must outlive the comparison; may be null.
};

// The data sets of a grid, each loaded once.
class GridData {
 public:
  // Throws UserError, naming the cell, if data cannot be loaded, do not fit the model, or cannot be dealt to so many workers.
  explicit GridData(const Grid& grid);

  const data::Dataset& of(const run::RunConfig& config) const;

 private:
  std::map<std::pair<std::string, std::string>, data::Dataset> sets_;
};

// All runs: cell after cell, for each the seeds in their order.
std::vector<PlannedRun> plan(const Grid& grid, const GridData& data);

// For people: every cell with the keys by which it differs from others, and about how many samples it uses.
std::string describe(const Grid& grid, const std::vector<PlannedRun>& runs);

// Whether there is a comparison of this very grid in a folder, and some of its runs have not ended, or failed.
bool is_unfinished(const Grid& grid, const std::string& directory);

// Not thread-safe, but for what its runs do on their own.
class Comparison {
 public:
  // Makes the folder or goes on in it. Throws UserError if another process works in it, something else is in it, which may be a comparison
  // that has no cell in common with the grid, or a run of another configuration (which it names) is in the place of one of the grid; then
  // nothing is changed. The grid must outlive the comparison.
  Comparison(const Grid& grid, ComparisonOptions options);
  ~Comparison();

  const std::vector<PlannedRun>& runs() const { return runs_; }

  // Cells of earlier calls that are not in the grid. They stay where they are, and are in no table.
  std::size_t cells_left_over() const { return cells_left_over_; }

  // Runs what has not ended, writes the files and returns what there is. A run that fails with an error is part of the result, and does not
  // end the others. Files are also written now and then, so that there is something to look at. Throws UserError if they cannot be written.
  ComparisonResult run();

  bool interrupted() const { return interrupted_; }

 private:
  class Relay;

  void look_around();
  void look_for_other_cells();
  std::vector<std::string> look_at_runs();
  void write_files(const ComparisonResult& found) const;
  void write_files_now_and_then();
  void run_side_by_side(const std::vector<std::size_t>& order);
  void run_one(std::size_t index);
  std::optional<RunOutcome> train(const PlannedRun& planned);
  std::optional<run::Checkpoint> checkpoint_of(const PlannedRun& planned);
  void tidy_up(const PlannedRun& ended) const;
  void tell(const std::function<void(ComparisonObserver&)>& what);
  bool stopped() const { return options_.stop && options_.stop(); }
  std::string full_path(const PlannedRun& planned) const;
  ComparisonResult result() const;

  const Grid& grid_;
  ComparisonOptions options_;
  GridData data_;
  std::vector<PlannedRun> runs_;
  std::unique_ptr<FileLock> lock_;
  std::vector<std::optional<RunOutcome>> outcomes_;  // By run.
  std::size_t cells_left_over_ = 0;
  bool interrupted_ = false;
  Stopwatch clock_{};
  double next_write_ = 0;  // When the files are written again, by the clock.
  std::mutex mutex_;       // Guards the observer, and while runs go on outcomes and files.
};

}  // namespace starling::lab
