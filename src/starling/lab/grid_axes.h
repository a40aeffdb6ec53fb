// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The axes of a grid, as layers that go over a training configuration.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "starling/lab/grid.h"
#include "starling/run/toml_table.h"

namespace starling::lab {

// An axis with its layers, and where it stands.
struct LayeredAxis {
  std::string name{};
  std::vector<run::TomlTable::Choice> choices{};
  std::string place{};  // For messages: "table.toml:12" or "--workers".
  bool from_flag = false;
  std::size_t line = 0;
  std::size_t column = 0;

  std::vector<std::string> labels() const {
    std::vector<std::string> result;
    for (const run::TomlTable::Choice& choice : choices) result.push_back(choice.text);
    return result;
  }
};

// Reads [grid] and [[axis]] of a file in their order, then the axes of flags; perhaps there are none. Throws UserError if something is
// wrong with an axis as such, or two of them set the same key; whether keys are those of a configuration is seen when a cell is made.
std::vector<LayeredAxis> read_axes(run::TomlTable& file, const GridSource& source);

// Throws UserError, with the place of the key, if a text is there twice.
void reject_twice(const run::TomlTable& table, std::string_view key, const std::string& what, const std::vector<std::string>& texts);

}  // namespace starling::lab
