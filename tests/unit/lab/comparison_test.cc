// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Comparisons that are run: side by side, interrupted and continued, with runs that do not converge or fail.
#include "starling/lab/comparison.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/lab/comparison_table.h"

namespace starling::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBase = R"(
model.name = "dense 8, relu, dense 3"
data.name = "blobs:classes=3,samples=300"
train.epochs = 2
train.batch = 16
fabric.name = "sim"
sim.network.jitter = "exponential:500us"
)";

// Strategies in lockstep and others, each with a cell that diverges.
constexpr const char* kAxes = R"(
[compare]
seeds = 2
values = ["test_accuracy", "seconds", "bytes_sent"]
[grid]
strategy.name = ["sync", "async", "ea-wild"]
strategy.workers = [3]
[[axis]]
name = "rate"
[[axis.choice]]
label = "usual"
[[axis.choice]]
label = "huge"
optimizer.lr = 1e30
)";

Grid small_grid(const std::string& extra = "") { return read_grid({.text = std::string(kBase) + extra + kAxes, .origin = "grid.toml"}); }

class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() : folder_(testing::TempDir() + "starling_comparison_test_" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~ComparisonTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string contents_of(const std::string& name) const { return read_file(path(name), "test"); }

  // Table, JSON and CSV.
  std::string run(const Grid& grid, const std::string& name, ComparisonOptions options = {}) const {
    options.directory = path(name);
    options.command = "starling compare";
    Comparison comparison(grid, options);
    const ComparisonResult result = comparison.run();
    interrupted_ = comparison.interrupted();
    EXPECT_EQ(contents_of(name + "/comparison.json"), to_json(result));
    EXPECT_EQ(contents_of(name + "/comparison.csv"), to_csv(result));
    return to_tables(result, TableForm::plain) + to_json(result) + to_csv(result);
  }

  std::string folder_;
  mutable bool interrupted_ = false;
};

// Counts what it hears, and may ask to stop after so many progress reports.
class Counting final : public ComparisonObserver {
 public:
  void run_began(const PlannedRun&) override { ++began; }
  void run_progressed(const PlannedRun&, const run::Progress&) override { ++reports; }
  void run_ended(const PlannedRun& planned, const RunOutcome&) override {
    ++ended;
    paths.push_back(planned.path);
  }
  void run_interrupted(const PlannedRun&) override { ++interrupted; }
  void noted(const PlannedRun&, const std::string& message) override { notes.push_back(message); }

  int began = 0;
  std::atomic<int> ended{0};
  std::atomic<int> reports{0};
  int interrupted = 0;
  std::vector<std::string> paths{};
  std::vector<std::string> notes{};
};

TEST_F(ComparisonTest, RunsEveryCellWithEverySeed) {
  const Grid grid = small_grid();
  Counting counting;
  Comparison comparison(grid, {.directory = path("a"), .jobs = 1, .observer = &counting});
  const ComparisonResult result = comparison.run();
  EXPECT_FALSE(comparison.interrupted());
  EXPECT_EQ(counting.began, 12);
  EXPECT_EQ(counting.ended, 12);
  EXPECT_GT(counting.reports, 12);
  ASSERT_EQ(result.cells.size(), 6U);
  EXPECT_EQ(result.failed(), 0U);
  for (const CellOutcome& cell : result.cells) {
    ASSERT_EQ(cell.runs.size(), 2U);
    EXPECT_EQ(cell.runs[0].seed, 1U);
    EXPECT_EQ(cell.runs[1].seed, 2U);
    EXPECT_NE(cell.runs[0].weights_sha256, cell.runs[1].weights_sha256);
    // Not to converge is a result, and the end of nothing.
    EXPECT_EQ(cell.runs[0].converged, cell.labels[2] == "usual") << cell.labels[0] << " " << cell.runs[0].reason;
    EXPECT_EQ(field_text(cell, "test_accuracy") == "NC", cell.labels[2] == "huge");
    EXPECT_TRUE(fs::exists(path("a/" + cell.runs[0].path + "/metrics.jsonl")));
    EXPECT_FALSE(fs::exists(path("a/" + cell.runs[0].path + "/checkpoints")));
  }
  EXPECT_EQ(contents_of("a/comparison.toml"), grid.toml);
}

TEST_F(ComparisonTest, DoesNotDependOnHowManyRunAtOnce) {
  const std::string one = run(small_grid(), "one", {.jobs = 1});
  EXPECT_EQ(run(small_grid(), "two", {.jobs = 2}), one);
  EXPECT_EQ(run(small_grid("sim.pool_threads = 3\n"), "many", {.jobs = 30}), one);
}

TEST_F(ComparisonTest, LongRunsGoFirst) {
  const Grid grid =
      read_grid({.text = std::string(kBase) + "[grid]\ndata.partition = ['dataset', 'none']\nstrategy.workers = [2, 3]\n", .origin = "g"});
  Counting counting;
  Comparison comparison(grid, {.directory = path("a"), .jobs = 1, .observer = &counting});
  static_cast<void>(comparison.run());
  EXPECT_EQ(counting.paths,
            (std::vector<std::string>{"cells/none_3/seed-1", "cells/none_2/seed-1", "cells/dataset_2/seed-1", "cells/dataset_3/seed-1"}));
}

// Stopped after any number of reports, and continued, as often as it takes: as if nothing had happened.
TEST_F(ComparisonTest, InterruptedAndContinuedIsTheSame) {
  const std::string whole = run(small_grid(), "whole", {.jobs = 1});
  for (const int between : {0, 3, 12}) {
    const std::string name = "stopped-" + std::to_string(between);
    std::string text;
    int calls = 0;
    do {
      Counting counting;
      const auto stop = [&] { return counting.reports >= between + calls; };  // One more every time: it gets on.
      text = run(small_grid(), name, {.jobs = 2, .stop = stop, .observer = &counting});
      ++calls;
    } while (interrupted_ && calls < 1000);
    EXPECT_GT(calls, 1) << name;
    EXPECT_EQ(text, whole) << name;
  }
}

// Groups of workers are in step inside, but not with each other: interrupted, they have no checkpoint but the one before.
TEST_F(ComparisonTest, TwoInterruptionsInOneEpochChangeNothing) {
  const std::string text = std::string(kBase) +
                           "train.epochs = 4\ncompare.values = ['seconds', 'bytes_sent']\nstrategy.workers = 4\n"
                           "compare.options.ea-wild.group = 2\n[grid]\nstrategy.name = ['sync', 'local-sgd', 'ea-wild']\n";
  const Grid grid = read_grid({.text = std::string(text).replace(text.find("train.epochs = 2\n"), 17, ""), .origin = "g"});
  const std::string whole = run(grid, "whole", {.jobs = 1});
  // Asked after every step: three calls out of four end after a few steps, each at another place.
  int calls = 0;
  std::string stopped;
  do {
    const int most = calls % 4 == 3 ? 150 : 5 + calls % 4 * 3;
    std::atomic<int> asked{0};
    stopped = run(grid, "stopped", {.jobs = 1, .stop = [&] { return ++asked > most; }});
    ++calls;
  } while (interrupted_ && calls < 100);
  EXPECT_FALSE(interrupted_) << "it makes no progress";
  EXPECT_GT(calls, 6);
  EXPECT_EQ(stopped, whole);
}

TEST_F(ComparisonTest, StoppedAfterSomeRunsItSkipsThem) {
  Counting first;
  const auto stop = [&] { return first.ended >= 5; };
  static_cast<void>(run(small_grid(), "a", {.jobs = 1, .stop = stop, .observer = &first}));
  EXPECT_TRUE(interrupted_);
  EXPECT_EQ(first.ended, 5);
  Counting second;
  const std::string text = run(small_grid(), "a", {.jobs = 1, .observer = &second});
  EXPECT_FALSE(interrupted_);
  EXPECT_EQ(second.ended, 7);
  Counting third;
  EXPECT_EQ(run(small_grid(), "a", {.observer = &third}), text);
  EXPECT_EQ(third.began, 0);
  EXPECT_EQ(run(small_grid(), "b"), text);
}

TEST_F(ComparisonTest, AnInterruptedOneIsWrittenAsFarAsItWent) {
  Counting counting;
  const auto stop = [&] { return counting.ended >= 3; };
  static_cast<void>(run(small_grid(), "a", {.jobs = 1, .stop = stop, .observer = &counting}));
  const std::string csv = contents_of("a/comparison.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
}

TEST_F(ComparisonTest, DamagedFilesAreMadeAnew) {
  const std::string text = run(small_grid(), "a");
  fs::resize_file(path("a/cells/sync_3_usual/seed-1/result.json"), 20);
  fs::remove_all(path("a/cells/async_3_usual/seed-1"));
  fs::remove(path("a/cells/async_3_usual/seed-2/result.json"));
  fs::create_directories(path("a/cells/async_3_usual/seed-2/checkpoints/step-00000004"));
  write_file(path("a/cells/async_3_usual/seed-2/checkpoints/latest"), {"step-00000004\n"}, "test");
  Counting counting;
  EXPECT_EQ(run(small_grid(), "a", {.observer = &counting}), text);
  EXPECT_EQ(counting.ended, 3);
  ASSERT_EQ(counting.notes.size(), 1U);
  EXPECT_NE(counting.notes[0].find("it is begun anew"), std::string::npos) << counting.notes[0];
}

TEST_F(ComparisonTest, RunsWhoseBooksDoNotBalanceAreBegunAnew) {
  const std::string text = run(small_grid(), "a");
  const std::string path_of_one = path("a/cells/sync_3_usual/seed-1/result.json");
  std::string json = read_file(path_of_one, "test");
  const std::string balanced = "\"balanced\":true";
  ASSERT_NE(json.find(balanced), std::string::npos);
  write_file(path_of_one, {json.replace(json.find(balanced), balanced.size(), "\"balanced\":false")}, "test");
  EXPECT_TRUE(is_unfinished(small_grid(), path("a")));
  Counting counting;
  EXPECT_EQ(run(small_grid(), "a", {.observer = &counting}), text);
  EXPECT_EQ(counting.paths, (std::vector<std::string>{"cells/sync_3_usual/seed-1"}));
}

TEST_F(ComparisonTest, ResultsDoNotNameCheckpointsThatWereRemoved) {
  static_cast<void>(run(small_grid(), "a"));
  const std::string result = contents_of("a/cells/sync_3_usual/seed-1/result.json");
  EXPECT_NE(result.find("\"checkpoint\":\"\""), std::string::npos) << result;
}

// So that there is something to look at, and to keep if the machine fails.
TEST_F(ComparisonTest, FilesAreThereBeforeItsEnd) {
  class Looking final : public ComparisonObserver {
   public:
    explicit Looking(std::string csv) : csv_(std::move(csv)) {}
    void run_ended(const PlannedRun&, const RunOutcome&) override {
      if (first.empty() && fs::exists(csv_)) first = read_file(csv_, "test");
    }
    std::string first{};

   private:
    std::string csv_;
  };
  Looking looking(path("a/comparison.csv"));
  static_cast<void>(run(small_grid(), "a", {.jobs = 1, .observer = &looking}));
  EXPECT_EQ(std::count(looking.first.begin(), looking.first.end(), '\n'), 2) << looking.first;
}

TEST_F(ComparisonTest, AnotherComparisonInTheFolderIsRefused) {
  const auto grid_of = [](const std::string& names) {
    return read_grid({.text = std::string(kBase) + "[grid]\nstrategy.name = [" + names + "]\n", .origin = "g"});
  };
  static_cast<void>(run(grid_of("'sync', 'async'"), "a"));
  const std::string before = contents_of("a/comparison.toml");
  const Grid other = grid_of("'easgd'");
  try {
    static_cast<void>(run(other, "a"));
    FAIL() << "it was not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("holds another comparison"), std::string::npos) << error.what();
  }
  EXPECT_EQ(contents_of("a/comparison.toml"), before);
  const Grid fewer = grid_of("'sync', 'easgd'");
  EXPECT_EQ(Comparison(fewer, {.directory = path("a")}).cells_left_over(), 1U);
  EXPECT_EQ(Comparison(other, {.directory = path("a"), .fresh = true}).cells_left_over(), 2U);
}

TEST_F(ComparisonTest, KnowsWhetherThereIsSomethingLeftToDo) {
  const Grid grid = small_grid();
  EXPECT_FALSE(is_unfinished(grid, path("a")));
  Counting counting;
  static_cast<void>(run(grid, "a", {.jobs = 1, .stop = [&] { return counting.ended >= 3; }, .observer = &counting}));
  EXPECT_TRUE(is_unfinished(grid, path("a")));
  EXPECT_FALSE(is_unfinished(small_grid("sim.pool_threads = 3\n"), path("a")));  // Another file.
  static_cast<void>(run(grid, "a"));
  EXPECT_FALSE(is_unfinished(grid, path("a")));
}

TEST_F(ComparisonTest, NewCellsAreAdded) {
  const std::string base = std::string(kBase) + "[grid]\nstrategy.name = ['sync'";
  static_cast<void>(run(read_grid({.text = base + "]\n", .origin = "g"}), "a"));
  Counting counting;
  const Grid more = read_grid({.text = base + ", 'async']\n", .origin = "g"});
  const std::string text = run(more, "a", {.observer = &counting});
  EXPECT_EQ(counting.paths, (std::vector<std::string>{"cells/async/seed-1"}));
  EXPECT_EQ(run(more, "b"), text);
}

TEST_F(ComparisonTest, AnotherConfigurationIsRefusedUnlessFresh) {
  static_cast<void>(run(small_grid(), "a"));
  const std::string before = contents_of("a/comparison.json");
  const Grid other =
      read_grid({.text = std::string(kBase) + kAxes, .origin = "g", .base = {{.name = "--batch", .toml = "train.batch = 8"}}});
  try {
    static_cast<void>(run(other, "a"));
    FAIL() << "it was not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cells/sync_3_usual/seed-1' has a run of another configuration: train.batch is 8, but was 16"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(contents_of("a/comparison.json"), before);
  EXPECT_EQ(contents_of("a/comparison.toml"), small_grid().toml);
  const std::string text = run(other, "a", {.fresh = true});
  EXPECT_EQ(run(other, "b"), text);
}

TEST_F(ComparisonTest, OnlyOneProcessWorksOnIt) {
  const Grid grid = small_grid();
  const Comparison first(grid, {.directory = path("a")});
  try {
    const Comparison second(grid, {.directory = path("a")});
    FAIL() << "it was not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("another process is at work on the comparison"), std::string::npos) << error.what();
  }
}

TEST_F(ComparisonTest, AFolderWithOtherThingsInItIsLeftAlone) {
  fs::create_directories(path("a/precious"));
  const Grid grid = small_grid();
  EXPECT_THROW(Comparison(grid, {.directory = path("a")}), UserError);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("a")), {}), 1);
}

// Worker 1 dies, which async survives and sync does not.
TEST_F(ComparisonTest, AFailedRunIsNotTheEnd) {
  const Grid grid =
      read_grid({.text = std::string(kBase) +
                         "strategy.workers = 2\n[[sim.crash]]\nrank = 1\nat = '10ms'\n[grid]\nstrategy.name = ['sync', 'async']\n",
                 .origin = "g"});
  Comparison comparison(grid, {.directory = path("a")});
  const ComparisonResult result = comparison.run();
  EXPECT_EQ(result.failed(), 1U);
  EXPECT_FALSE(comparison.interrupted());
  EXPECT_EQ(result.cells[0].runs[0].ending, "failed");
  EXPECT_NE(result.cells[0].runs[0].reason.find("rank 1"), std::string::npos) << result.cells[0].runs[0].reason;
  EXPECT_TRUE(result.cells[1].runs[0].converged) << result.cells[1].runs[0].reason;
  EXPECT_EQ(field_text(result.cells[0], "test_accuracy"), "failed");
}

TEST_F(ComparisonTest, KeepsCheckpointsWhereItIsAskedTo) {
  const Grid grid = read_grid(
      {.text = std::string(kBase) + "[compare]\nkeep_checkpoints = true\n[grid]\nstrategy.name = ['sequential']\n", .origin = "g"});
  static_cast<void>(run(grid, "a"));
  EXPECT_TRUE(fs::exists(path("a/cells/sequential/seed-1/checkpoints/latest")));
  Counting counting;
  static_cast<void>(run(grid, "a", {.observer = &counting}));
  EXPECT_EQ(counting.began, 0);
  EXPECT_TRUE(fs::exists(path("a/cells/sequential/seed-1/checkpoints/latest")));
}

TEST_F(ComparisonTest, OnThreadsOneAfterTheOther) {
  const Grid grid = read_grid(
      {.text = std::string(kBase) + "[grid]\nstrategy.name = ['sync', 'async']\nfabric.name = ['threads', 'sim']\nstrategy.workers = [2]\n",
       .origin = "g"});
  Counting counting;
  Comparison comparison(grid, {.directory = path("a"), .jobs = 2, .observer = &counting});
  const ComparisonResult result = comparison.run();
  EXPECT_FALSE(comparison.interrupted());
  EXPECT_EQ(result.failed(), 0U);
  ASSERT_EQ(counting.paths.size(), 4U);
  EXPECT_EQ(counting.paths[2], "cells/sync_threads_2/seed-1");
  EXPECT_EQ(counting.paths[3], "cells/async_threads_2/seed-1");
  EXPECT_EQ(result.cells[0].runs[0].weights_sha256, result.cells[1].runs[0].weights_sha256);  // Sync is the same on every fabric.
}

TEST_F(ComparisonTest, WhatDoesNotFitTheDataIsRefusedBeforeAnythingRuns) {
  const auto error_of = [&](const std::string& axes) -> std::string {
    const Grid grid = read_grid({.text = std::string(kBase) + "[grid]\n" + axes, .origin = "g"});
    try {
      const Comparison comparison(grid, {.directory = path("a")});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const std::string& axes, const std::string& place, const std::string& cell) {
    const std::string error = error_of(axes);
    EXPECT_EQ(error.rfind(place, 0), 0U) << error;
    EXPECT_NE(error.find(cell), std::string::npos) << error;
  };
  expect("model.name = ['softmax',\n'lenet55']\n", "g:10: model.name: there is no model 'lenet55'", "(in the cell lenet55)");
  expect("model.name = ['lenet55']\n", "g:9: model.name: ", "Did you mean 'lenet5'?");
  expect("data.name = ['blobs:clases=2']\n", "g:9: data.name: ", "(in the cell blobs:clases=2)");
  expect("data.partition = ['dirichlet:abc']\n", "g:9: data.partition: ", "(in the cell dirichlet:abc)");
  expect("data.partition = ['labels']\nstrategy.workers = [3, 4]\n", "g:9: data.partition: ", "(in the cell labels, 4)");
  EXPECT_NE(error_of("model.name = ['softmax']\nstrategy.name = ['ist']\nstrategy.workers = [2]\n"), "");  // It has no hidden units.
  EXPECT_FALSE(fs::exists(path("a")));
}

TEST_F(ComparisonTest, DescribesWhatItWouldDo) {
  const Grid grid = small_grid();
  const std::string text = describe(grid, plan(grid, GridData(grid)));
  EXPECT_EQ(text.rfind("6 cells with 2 seeds each: 12 runs, about 7200 samples\n", 0), 0U) << text;
  EXPECT_NE(text.find("\nasync, 3, huge: 2 runs of about 600 samples\n  strategy.name = \"async\"\n  optimizer.lr = 1e+30\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("batch"), std::string::npos);
}

}  // namespace
}  // namespace starling::lab
