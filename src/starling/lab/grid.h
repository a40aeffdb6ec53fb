// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What a comparison is to run: axes with choices, and the configuration of every combination, read from a training configuration with the
// additional tables [compare], [grid] and [[axis]] (docs/compare.md), and from flags.
//
//   const Grid grid = read_grid({.text = read_file("table2.toml", "comparison"), .origin = "table2.toml"});
//   for (const Cell& cell : grid.cells) cell.config;
//
// The configuration of a cell is made of layers, of which later ones win: the base, which is all that stands in the file as for training;
// then the flags; then [compare.options.NAME], where NAME is the cell's strategy; then the choices. No two axes set the same key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "starling/run/run_config.h"

namespace starling::lab {

// What a grid is read from. A flag is given as TOML, its name is where mistakes are said to be.
struct GridSource {
  struct Flag {
    std::string name{};  // "--lr".
    std::string toml{};  // "optimizer.lr = 0.1"; of an axis "strategy.workers = [2, 5]".
  };

  std::string text{};    // Of the file; may be empty.
  std::string origin{};  // Its name, for messages.
  std::vector<Flag> base{};
  std::vector<Flag> axes{};                           // In the place of axes of the file that set the same key alone, otherwise after them.
  std::vector<std::string> settings{};                // "easgd.rho=0.9", for cells of that strategy.
  std::optional<std::vector<std::uint64_t>> seeds{};  // In the place of the file's; likewise below.
  std::optional<std::uint64_t> seed_count{};
  std::optional<std::vector<std::string>> values{};
  std::optional<std::string> title{};
};

struct Axis {
  std::string name{};
  std::vector<std::string> labels{};
};

struct Cell {
  std::vector<std::string> labels{};  // One per axis.
  std::string folder{};               // Below the comparison's: "cells/sync_2_dataset". Depends on the labels alone.
  run::RunConfig config{};            // But for the seed.
  // Where the values stand that only data and model can tell to be wrong: ("model.name", "table.toml:12"). Those that are given.
  std::map<std::string, std::string> places{};

  // Of one run of the cell.
  run::RunConfig config_with(std::uint64_t seed) const;
  std::string path(std::uint64_t seed) const;  // "cells/sync_2_dataset/seed-1".

  // Runs `check`, and puts the place and the key in front of a UserError it throws, if the key is one of these, and the labels behind it.
  void locate(const std::string& key, const std::function<void()>& check) const;
};

struct Grid {
  std::string title{};  // May be empty.
  std::vector<Axis> axes{};
  std::vector<std::string> rows{};  // Names of axes; each is either here or there.
  std::vector<std::string> columns{};
  std::vector<std::uint64_t> seeds{};
  std::vector<std::string> values{};  // What tables show: some of value_names().
  bool keep_checkpoints = false;
  std::vector<Cell> cells{};  // In the order of the axes, the last of which changes fastest.
  std::string out{};          // Where the base says to write; may be empty.
  std::string toml{};         // A file that gives the same grid: the one it was read from, where there were no flags.
};

// Seeds, wherever they are given, are whole numbers from 0 to this: files hold no larger ones.
inline constexpr std::uint64_t kLargestSeed = 9'000'000'000'000'000'000;

// The numbers of a run that a table may show. All are in result.json.
const std::vector<std::string>& value_names();

// Reads, and validates the configurations of all cells. Throws UserError with file, line, key and the nearest valid name where something
// is unknown, of the wrong type, empty or there twice; what is wrong only with a certain cell names its labels.
Grid read_grid(const GridSource& source);

// "sync, 2, dataset".
std::string name_of(const Cell& cell);

}  // namespace starling::lab
