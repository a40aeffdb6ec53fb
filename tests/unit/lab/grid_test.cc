// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

using Strings = std::vector<std::string>;

Grid grid_of(const std::string& text) { return read_grid({.text = text, .origin = "grid.toml"}); }

std::string error_of(const GridSource& source) {
  try {
    static_cast<void>(read_grid(source));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void expect_error(const std::string& text, const std::string& part) {
  const std::string error = error_of({.text = text, .origin = "grid.toml"});
  EXPECT_NE(error.find(part), std::string::npos) << text << "\n" << error;
}

const Cell& cell_of(const Grid& grid, const Strings& labels) {
  const auto found = std::find_if(grid.cells.begin(), grid.cells.end(), [&](const Cell& cell) { return cell.labels == labels; });
  if (found == grid.cells.end()) throw std::runtime_error("there is no such cell");
  return *found;
}

constexpr const char* kTwoAxes = R"(
[data]
name = "blobs"
[train]
epochs = 7
[[axis]]
name = "method"
[[axis.choice]]
label = "sync"
strategy.name = "sync"
[[axis.choice]]
label = "slow async"
strategy.name = "async"
delay = ["one:30ms"]
optimizer.lr = 0.5
[grid]
strategy.workers = [2, 5]
)";

TEST(Grid, HasACellForEveryCombinationInTheOrderOfTheAxes) {
  const Grid grid = grid_of(kTwoAxes);
  ASSERT_EQ(grid.axes.size(), 2U);
  EXPECT_EQ(grid.axes[0].name, "method");
  EXPECT_EQ(grid.axes[1].name, "workers");
  Strings names;
  for (const Cell& cell : grid.cells) names.push_back(name_of(cell));
  EXPECT_EQ(names, (Strings{"sync, 2", "sync, 5", "slow async, 2", "slow async, 5"}));
  EXPECT_EQ(grid.rows, Strings{"method"});
  EXPECT_EQ(grid.columns, Strings{"workers"});
  EXPECT_EQ(grid.seeds, std::vector<std::uint64_t>{1});
  EXPECT_EQ(grid.values, Strings{"test_accuracy"});
}

TEST(Grid, AxesStandInTheOrderOfTheFile) {
  const Grid grid = grid_of("[grid]\nstrategy.workers = [2]\noptimizer.lr = [0.1]\n[[axis]]\nname = 'a'\n[[axis.choice]]\nlabel = 'x'\n");
  ASSERT_EQ(grid.axes.size(), 3U);
  EXPECT_EQ(grid.axes[0].name, "workers");
  EXPECT_EQ(grid.axes[1].name, "lr");
  EXPECT_EQ(grid.axes[2].name, "a");
}

TEST(Grid, ChoicesGoOverTheBase) {
  const Grid grid = grid_of(kTwoAxes);
  const run::RunConfig& sync = cell_of(grid, {"sync", "5"}).config;
  EXPECT_EQ(sync.strategy, "sync");
  EXPECT_EQ(sync.workers, 5);
  EXPECT_EQ(sync.epochs, 7U);
  EXPECT_EQ(sync.schedule.lr, run::RunConfig().schedule.lr);
  EXPECT_TRUE(sync.fabric.sim.delays.empty());
  const run::RunConfig& async = cell_of(grid, {"slow async", "5"}).config;
  EXPECT_EQ(async.schedule.lr, 0.5);
  ASSERT_EQ(async.fabric.sim.delays.size(), 2U);
  EXPECT_EQ(async.fabric.sim.delays[0].ranks.text(), "0-4");  // Of this cell's workers.
}

// Otherwise rows would have labels with values that no cell has.
TEST(Grid, AKeyBelongsToOneAxis) {
  const std::string first = "[[axis]]\nname = 'a'\n[[axis.choice]]\nlabel = 'x'\noptimizer.lr = 0.1\n";
  const std::string second = "[[axis]]\nname = 'b'\n[[axis.choice]]\nlabel = 'y'\noptimizer.lr = 0.2\n";
  expect_error(first + second,
               "grid.toml:10: the axis 'b' sets optimizer.lr, but so does the axis 'a' (grid.toml:5): a key belongs to one axis");
  expect_error(
      "[grid]\nstrategy.workers = [2, 3]\n[[axis]]\nname = 'a'\n[[axis.choice]]\nlabel = 'x'\n[[axis.choice]]\nlabel = 'y'\n"
      "strategy.workers = 4\n",
      "grid.toml:9: the axis 'a' sets strategy.workers, but so does the axis 'workers' (grid.toml:2)");
  // Also where one sets the whole of which the other sets a part.
  expect_error("[[axis]]\nname = 'a'\n[[axis.choice]]\nlabel = 'x'\nstrategy.options = {}\n[grid]\nstrategy.options.rho = [1]\n",
               "grid.toml:7: the axis 'rho' sets strategy.options.rho, but so does the axis 'a' (grid.toml:5)");
}

TEST(Grid, AFlagTakesThePlaceOfAnAxisThatSetsItsKeyAlone) {
  const std::string two =
      "[grid]\ntrain.batch = [8]\n[[axis]]\nname = 'method'\n[[axis.choice]]\nlabel = 'x'\nstrategy.name = 'sync'\n"
      "[[axis.choice]]\nlabel = 'y'\nstrategy.name = 'easgd'\n";
  GridSource source{.text = "[compare]\nrows = ['method']\n[strategy]\nworkers = 2\n" + two, .origin = "grid.toml"};
  source.axes = {{.name = "--strategies", .toml = "strategy.name = ['async', 'hogwild']"}};
  const Grid grid = read_grid(source);
  ASSERT_EQ(grid.axes.size(), 2U);
  EXPECT_EQ(grid.axes[1].name, "method");  // By which the file knows it.
  EXPECT_EQ(grid.axes[1].labels, (Strings{"async", "hogwild"}));
  EXPECT_EQ(grid.rows, Strings{"method"});
  source.text += "optimizer.lr = 0.5\n";
  EXPECT_EQ(
      error_of(source),
      "--strategies: the axis 'strategy' sets strategy.name, but so does the axis 'method' (grid.toml:11): a key belongs to one axis");
  source.text = "";
  source.axes.push_back({.name = "--grid", .toml = "strategy.name = ['sync']"});
  EXPECT_EQ(error_of(source).rfind("--grid: the axis 'strategy' sets strategy.name, but so does the axis 'strategy' (--strategies)", 0), 0U)
      << error_of(source);
  source.text = "[[axis]]\nname = 'strategy'\n[[axis.choice]]\nlabel = 'x'\ntrain.batch = 8\n";
  source.origin = "grid.toml";
  source.axes.pop_back();
  EXPECT_EQ(error_of(source), "--strategies: there are two axes 'strategy'; the other is made by grid.toml:2");
}

TEST(Grid, OptionsOfTheBaseBelongToItsStrategy) {
  const Grid grid = grid_of(R"(
[strategy]
name = "easgd"
workers = 2
[strategy.options]
rho = 0.7
[grid]
strategy.name = ["easgd", "async"]
)");
  EXPECT_EQ(cell_of(grid, {"easgd"}).config.options.at("rho"), "0.7");
  EXPECT_TRUE(cell_of(grid, {"async"}).config.options.empty());
}

TEST(Grid, OptionsMayBeAnAxisBeforeOrAfterTheStrategy) {
  const std::string base = "[strategy]\nname = 'async'\nworkers = 2\n";
  for (const std::string order : {"strategy.name = ['dc-asgd']\nstrategy.options.lambda = [0.04, 2]\n",
                                  "strategy.options.lambda = [0.04, 2]\nstrategy.name = ['dc-asgd']\n"}) {
    const Grid grid = grid_of(base + "[grid]\n" + order);
    ASSERT_EQ(grid.cells.size(), 2U);
    EXPECT_EQ(grid.cells[0].config.options.at("lambda"), "0.04");
    EXPECT_EQ(grid.cells[1].config.options.at("lambda"), "2");
  }
}

TEST(Grid, OptionsOfOneStrategyAmongSeveral) {
  const Grid grid = grid_of("[compare.options.easgd]\nrho = 0.7\n[grid]\nstrategy.name = ['easgd', 'sync']\nstrategy.workers = [2]\n");
  EXPECT_EQ(grid.cells[0].config.options.at("rho"), "0.7");
  EXPECT_TRUE(grid.cells[1].config.options.empty());
  expect_error(
      "[compare.options.easgf]\nrho = 0.7\n[grid]\nstrategy.name = ['easgd', 'sync']\nstrategy.workers = [2]\n",
      "grid.toml:1: these are options of strategy 'easgf', but no cell has it; the strategies are easgd, sync. Did you mean 'easgd'?");
}

TEST(Grid, NamesOfAxesSayWhatTheyAre) {
  const Grid grid = grid_of("[grid]\nstrategy.name = ['sync']\nschedule.kind = ['constant']\ndata.name = ['blobs']\n");
  EXPECT_EQ(grid.axes[0].name, "strategy");
  EXPECT_EQ(grid.axes[1].name, "schedule");
  EXPECT_EQ(grid.axes[2].name, "data");
  // Where the last parts are the same, the whole keys tell axes apart.
  const Grid same =
      grid_of("[strategy]\nname = 'hogwild'\nworkers = 2\n[grid]\nstrategy.options.momentum = ['none']\noptimizer.momentum = [0.5]\n");
  EXPECT_EQ(same.axes[0].name, "strategy.options.momentum");
  EXPECT_EQ(same.axes[1].name, "optimizer.momentum");
}

TEST(Grid, Seeds) {
  const std::string grid = "[grid]\nstrategy.workers = [2]\n";
  EXPECT_EQ(grid_of("[compare]\nseeds = 3\n" + grid).seeds, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(grid_of("[run]\nseed = 10\n[compare]\nseeds = 2\n" + grid).seeds, (std::vector<std::uint64_t>{10, 11}));
  EXPECT_EQ(grid_of("[compare]\nseeds = [5, 3]\n" + grid).seeds, (std::vector<std::uint64_t>{5, 3}));
  const Grid read = grid_of("[compare]\nseeds = [5]\n" + grid);
  EXPECT_EQ(read.cells[0].config_with(5).seed(), 5U);
  EXPECT_EQ(read.cells[0].path(5), "cells/2/seed-5");
  expect_error("[compare]\nseeds = 0\n" + grid, "grid.toml:2: there are no seeds");
  expect_error("[compare]\nseeds = []\n" + grid, "grid.toml:2: there are no seeds");
  expect_error("[compare]\nseeds = [1, 1]\n" + grid, "grid.toml:2: a seed is there twice");
  expect_error("[compare]\nseeds = [1.5]\n" + grid, "grid.toml:2: compare.seeds is a float, but it must be a list of whole numbers");
  expect_error("[compare]\nseeds = -1\n" + grid, "grid.toml:2: compare.seeds is -1");
  expect_error("[compare]\nseeds = [-1]\n" + grid, "grid.toml:2: a seed is -1");
  expect_error("[compare]\nseeds = 'all'\n" + grid, "grid.toml:2: compare.seeds is a string");
}

// The same limit for all ways in, and files that can be read again.
TEST(Grid, LargeSeeds) {
  const std::string grid = "[grid]\nstrategy.workers = [2]\n";
  constexpr std::uint64_t kLargest = 9'000'000'000'000'000'000;
  const Grid large = grid_of("[compare]\nseeds = [9000000000000000000, 8999999999999999999]\n" + grid);
  EXPECT_EQ(large.seeds, (std::vector<std::uint64_t>{kLargest, kLargest - 1}));
  expect_error("[compare]\nseeds = [9000000000000000001]\n" + grid,
               "grid.toml:2: a seed is 9000000000000000001, but seeds are whole numbers");
  expect_error("[run]\nseed = 9000000000000000001\n" + grid, "grid.toml:2: a seed is 9000000000000000001");
  expect_error("[fabric]\nseed = 9000000000000000001\n" + grid, "grid.toml:2: a seed is 9000000000000000001");
  expect_error("[run]\nseed = 9000000000000000000\n[compare]\nseeds = 2\n" + grid, "grid.toml:4: a seed is 9000000000000000001");
  EXPECT_NE(error_of({.text = grid, .origin = "g", .seeds = std::vector<std::uint64_t>{kLargest + 1}}), "");
  const Grid flags = read_grid({.text = grid, .origin = "g", .seeds = std::vector<std::uint64_t>{kLargest, 3}});
  EXPECT_EQ(grid_of(flags.toml).seeds, (std::vector<std::uint64_t>{kLargest, 3}));
}

TEST(Grid, RowsAndColumns) {
  const std::string axes = "[grid]\nstrategy.workers = [2]\noptimizer.lr = [0.1]\ntrain.batch = [8]\n";
  const Grid rows = grid_of("[compare]\nrows = ['lr']\n" + axes);
  EXPECT_EQ(rows.rows, Strings{"lr"});
  EXPECT_EQ(rows.columns, (Strings{"workers", "batch"}));
  const Grid columns = grid_of("[compare]\ncolumns = ['lr']\n" + axes);
  EXPECT_EQ(columns.rows, (Strings{"workers", "batch"}));
  EXPECT_EQ(columns.columns, Strings{"lr"});
  expect_error("[compare]\nrows = ['worker']\n" + axes,
               "grid.toml:2: there is no axis 'worker'; there are workers, lr, batch. Did you mean 'workers'?");
  expect_error("[compare]\nrows = ['lr']\ncolumns = ['batch']\n" + axes, "the axis 'workers' is neither in compare.rows nor");
  expect_error("[compare]\nrows = ['lr', 'workers']\ncolumns = ['batch', 'lr']\n" + axes, "the axis 'lr' is in compare.rows and in");
  expect_error("[compare]\nrows = ['lr', 'lr']\n" + axes, "grid.toml:2: in compare.rows the name 'lr' is there twice");
  expect_error("[compare]\nrows = 3\n" + axes, "grid.toml:2: compare.rows must be a list of names");
}

TEST(Grid, MistakesAreReportedWhereTheyWereMade) {
  const std::string axis = "[[axis]]\nname = 'method'\n[[axis.choice]]\nlabel = 'a'\n";
  expect_error("", "grid.toml: there is nothing to compare");
  expect_error("[train]\nepochs = 2\n[gird]\nstrategy.workers = [2]\n", "grid.toml:3: there is no key 'gird'");
  expect_error("[gird]\nstrategy.workers = [2]\n", "Did you mean 'grid'?");
  expect_error("[[axes]]\nname = 'a'\n", "grid.toml:1: there is no key 'axes'");
  expect_error("[[axes]]\nname = 'a'\n", "Did you mean 'axis'?");
  expect_error("[grid]\ntrain.epochs = [1,\n99999999999]\n", "grid.toml:3: train.epochs: epochs is 99999999999, but it is at most");
  expect_error("[grid]\n\"strategy.workers\" = [2]\n", "grid.toml:2: in 'strategy.workers' dots are in quotes");
  expect_error("[grid]\n", "grid.toml:1: [grid] is empty");
  expect_error("[grid]\nstrategy.workers = []\n", "grid.toml:2: grid.strategy.workers is an empty list");
  expect_error("[grid]\nstrategy.workers = 2\n", "grid.toml:2: grid.strategy.workers is an integer, but it must be a list");
  expect_error("[grid]\nstrategy.workers = [2, 'x']\n",
               "grid.toml:2: strategy.workers is a string, but it must be a whole number (in the cell x)");
  expect_error("[grid]\nstrategy.workers = [2,\n 2]\n", "grid.toml:2: in strategy.workers the value '2' is there twice");
  expect_error("[grid]\n\nstrategy.wrkers = [2]\n", "grid.toml:3: there is no key 'strategy.wrkers'");
  expect_error("[grid]\nstrategy.wrkers = [2]\n", "Did you mean 'workers'?");
  expect_error("[grid]\noptimiser.lr = [2]\n", "there is no key 'optimiser'; the file has");
  expect_error("[grid]\nstrategy.workers = [2]\nstrategy.name = ['sync',\n 'asinc']\n",
               "grid.toml:4: there is no strategy 'asinc'; there are ");
  expect_error("[grid]\nstrategy.name = ['asinc']\n", "Did you mean 'async'? (in the cell asinc)");
  expect_error("[strategy]\nname = 'asinc'\n[grid]\nstrategy.workers = [2]\n", "grid.toml:2: there is no strategy 'asinc'");
  expect_error("[grid]\ndata.partition = ['dataset', 'label']\n", "grid.toml:2: there is no partition 'label'");
  expect_error("[grid]\ndata.name = ['fashion-mnis']\n", "Did you mean 'fashion-mnist'?");
  expect_error("[grid]\nfabric.name = ['simm']\n", "grid.toml:2: the fabric is 'simm'");
  expect_error("[grid]\nrun.seed = [1, 2]\n", "grid.toml:2: run.seed is no axis: compare.seeds says");
  expect_error("[grid]\nrun.out = ['a', 'b']\n", "grid.toml:2: run.out belongs to the whole comparison");
  expect_error("[[axis]]\nname = 'method'\n", "grid.toml:1: axis 'method' has no choices");
  expect_error("[[axis]]\n[[axis.choice]]\nlabel = 'a'\n", "grid.toml:1: [[axis]] needs a 'name'");
  expect_error("[[axis]]\nname = 'method'\n[[axis.choice]]\nstrategy.name = 'sync'\n", "grid.toml:3: [[axis.choice]] needs a 'label'");
  expect_error(axis + "[[axis.choice]]\nlabel = 'a'\n", "grid.toml:6: axis 'method' has the label 'a' twice");
  expect_error(axis + axis, "grid.toml:6: there are two axes 'method'; the other is made by grid.toml:2");
  expect_error(axis + "strategi.name = 'sync'\n", "grid.toml:5: there is no key 'strategi'");
  expect_error(axis + "optimizer.lr = 'fast'\n", "grid.toml:5: optimizer.lr is a string, but it must be a number (in the cell a)");
  expect_error(axis + "[axis.choice.strategy]\nname = 'easgd'\nworkers = 2\noptions.roh = 1\n", "grid.toml:8: ");
  expect_error(axis + "[compare]\ntitel = 'x'\n", "grid.toml:6: there is no key 'compare.titel'");
  expect_error(axis + "[compare]\ntitel = 'x'\n", "Did you mean 'title'?");
  expect_error(axis + "[compare]\nvalues = ['test_acuracy']\n", "Did you mean 'test_accuracy'?");
  expect_error(axis + "[comapre]\n", "Did you mean 'compare'?");
  expect_error(axis + "choice = 3\n", "there is no key 'choice'");
}

TEST(Grid, WhatOnlyACellCannotDoNamesItsLabels) {
  expect_error("[grid]\nstrategy.name = ['sync', 'async']\nstrategy.servers = [0, 1]\nstrategy.workers = [2]\n",
               "(in the cell sync, 1, 2)");
}

TEST(Grid, FoldersAreDifferentForDifferentLabels) {
  const Grid grid = grid_of(
      "[[axis]]\nname = 'x'\n[[axis.choice]]\nlabel = 'a b'\n[[axis.choice]]\nlabel = 'a-b'\n[[axis.choice]]\nlabel = 'a,b'\n"
      "[[axis.choice]]\nlabel = '../../x'\n[[axis.choice]]\nlabel = '..'\n[[axis.choice]]\nlabel = 'a_b'\n"
      "[[axis.choice]]\nlabel = '" +
      std::string(300, 'x') + "'\n[[axis.choice]]\nlabel = '" + std::string(301, 'x') + "'\n");
  std::set<std::string> folders;
  for (const Cell& cell : grid.cells) {
    folders.insert(cell.folder);
    EXPECT_EQ(cell.folder.find('/'), cell.folder.rfind('/')) << cell.folder;
    EXPECT_LE(cell.folder.size(), 120U);
    EXPECT_NE(cell.folder, "cells/..");
  }
  EXPECT_EQ(folders.size(), grid.cells.size());
  EXPECT_EQ(grid.cells[1].folder, "cells/a-b");
  const Grid hidden = grid_of("[[axis]]\nname = 'x'\n[[axis.choice]]\nlabel = '.hidden'\n[[axis.choice]]\nlabel = '-rf'\n");
  for (const Cell& cell : hidden.cells) EXPECT_EQ(cell.folder.rfind("cells/_", 0), 0U) << cell.folder;
}

TEST(Grid, FlagsGoOnTopOfTheBase) {
  GridSource source{.text = kTwoAxes, .origin = "grid.toml"};
  source.base = {{.name = "--epochs", .toml = "train.epochs = 2"}};
  source.axes = {{.name = "--workers", .toml = "strategy.workers = [3]"}, {.name = "--grid", .toml = "train.batch = [8, 16]"}};
  source.seed_count = 2;
  source.values = Strings{"seconds"};
  source.title = "T";
  const Grid grid = read_grid(source);
  EXPECT_EQ(grid.cells.size(), 4U);  // The flag's workers in the place of the file's.
  EXPECT_EQ(grid.axes[1].labels, Strings{"3"});
  EXPECT_EQ(grid.axes[2].name, "batch");
  EXPECT_EQ(grid.cells[0].config.epochs, 2U);
  EXPECT_EQ(grid.seeds.size(), 2U);
  EXPECT_EQ(grid.values, Strings{"seconds"});
  EXPECT_EQ(grid.title, "T");
}

TEST(Grid, AFlagMustNotSayWhatAnAxisSays) {
  GridSource source{.text = kTwoAxes, .origin = "grid.toml"};
  source.base = {{.name = "--lr", .toml = "optimizer.lr = 0.1"}};
  EXPECT_EQ(error_of(source), "--lr gives optimizer.lr for all cells, but the axis 'method' says what it is: leave one of them out");
}

TEST(Grid, MistakesInFlagsNameTheFlag) {
  GridSource source{.axes = {{.name = "--grid", .toml = "strategy.wrkers = [1, 2]"}}};
  EXPECT_EQ(error_of(source).rfind("--grid: there is no key 'strategy.wrkers'", 0), 0U) << error_of(source);
  for (const char* toml : {"# = [3]", "a = [1]\nb = [2]", "\"strategy.workers\" = [2]"}) {
    source.axes = {{.name = "--grid", .toml = toml}};
    EXPECT_EQ(error_of(source).rfind("--grid", 0), 0U) << error_of(source);
  }
  source.axes = {{.name = "--workers", .toml = "strategy.workers = [\"many\", 2]"}};
  EXPECT_EQ(error_of(source).rfind("--workers: strategy.workers is a string", 0), 0U) << error_of(source);
}

// Cells, axes and all else that decides what is run.
void expect_same(const Grid& a, const Grid& b) {
  ASSERT_EQ(a.cells.size(), b.cells.size());
  for (std::size_t i = 0; i < a.cells.size(); ++i) {
    EXPECT_EQ(a.cells[i].labels, b.cells[i].labels);
    EXPECT_EQ(a.cells[i].folder, b.cells[i].folder);
    EXPECT_EQ(run::to_toml(a.cells[i].config), run::to_toml(b.cells[i].config));
  }
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_EQ(a.seeds, b.seeds);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.keep_checkpoints, b.keep_checkpoints);
}

TEST(Grid, WritesAFileThatGivesTheSameGrid) {
  EXPECT_EQ(grid_of(kTwoAxes).toml, kTwoAxes);
  GridSource source{.text =
                        "[compare]\nrows = ['workers']\nkeep_checkpoints = true\n[grid]\nstrategy.workers = [2, 5]\ntrain.batch = [8, 16]\n"
                        "[[axis]]\nname = 'method'\n[[axis.choice]]\nlabel = 'x'\nstrategy.name = 'async'\n",
                    .origin = "grid.toml"};
  source.base = {{.name = "--model", .toml = "model.name = \"conv 6 5x5, dense \\\"10\\\"\""},
                 {.name = "--speed", .toml = "speed = [{ranks = \"1\", factor = 0.5}]"}};
  source.axes = {{.name = "--grid", .toml = "strategy.name = ['easgd', 'sync']"}};
  source.settings = {"easgd.rho=0.25"};
  source.seeds = std::vector<std::uint64_t>{4, 2};
  source.title = "With \"quotes\"";
  const Grid grid = read_grid(source);
  EXPECT_EQ(grid.cells[0].config.options.at("rho"), "0.25");
  expect_same(read_grid({.text = grid.toml, .origin = "comparison.toml"}), grid);
}

}  // namespace
}  // namespace starling::lab
