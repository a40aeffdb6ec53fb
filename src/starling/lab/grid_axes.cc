// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/grid_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

using run::TomlTable;

// "workers" of "strategy.workers", but "strategy" of "strategy.name": a name alone does not say of what.
std::string axis_name(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  if (dot == std::string::npos) return key;
  const std::string last = key.substr(dot + 1);
  return last == "name" || last == "kind" ? axis_name(key.substr(0, dot)) : last;
}

// Seeds and the directory are the comparison's own.
void reject_reserved_keys(const TomlTable& layer) {
  for (const std::string_view key : {"run.seed", "fabric.seed"}) {
    if (!layer.contains(key)) continue;
    layer.locate(key, [&] { throw UserError(fmt::format("{} is no axis: compare.seeds says with which seeds every cell is run", key)); });
  }
  for (const std::string_view key : {"run.out", "compare", "grid", "axis"}) {
    if (!layer.contains(key)) continue;
    layer.locate(key, [&] { throw UserError(fmt::format("{} belongs to the whole comparison, and cannot differ between cells", key)); });
  }
}

LayeredAxis axis_of_key(const TomlTable& grid, const TomlTable::Leaf& leaf) {
  LayeredAxis axis{.name = axis_name(leaf.key), .choices = grid.choices(leaf.key), .line = leaf.line, .column = leaf.column};
  reject_twice(grid, leaf.key, fmt::format("in {} the value", leaf.key), axis.labels());
  for (const TomlTable::Choice& choice : axis.choices) reject_reserved_keys(choice.layer);
  return axis;
}

std::vector<LayeredAxis> read_grid_table(TomlTable& file) {
  std::vector<LayeredAxis> axes;
  const std::optional<TomlTable> grid = file.table("grid");
  if (!grid) return axes;
  const std::vector<TomlTable::Leaf> leaves = grid->leaves();
  if (leaves.empty()) {
    file.locate("grid", [] { throw UserError("[grid] is empty; it has keys with lists, as in strategy.workers = [2, 5]"); });
  }
  for (const TomlTable::Leaf& leaf : leaves) axes.push_back(axis_of_key(*grid, leaf));
  // Where the last parts of keys are the same, only the whole keys tell them apart.
  std::map<std::string, int> uses;
  for (const LayeredAxis& axis : axes) ++uses[axis.name];
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (uses[axes[i].name] > 1) axes[i].name = leaves[i].key;
  }
  return axes;
}

LayeredAxis read_axis_table(TomlTable& table) {
  LayeredAxis axis{.line = table.line()};
  table.require("name");
  axis.name = *table.string("name");
  table.locate("name", [&] {
    if (axis.name.empty()) throw UserError("the name of an axis is empty");
  });
  for (TomlTable& choice : table.tables("choice")) {
    choice.require("label");
    const std::string label = *choice.string("label");
    choice.locate("label", [&] {
      if (label.empty()) throw UserError("the label of a choice is empty");
      const std::vector<std::string> labels = axis.labels();
      if (std::find(labels.begin(), labels.end(), label) != labels.end()) {
        throw UserError(fmt::format("axis '{}' has the label '{}' twice", axis.name, label));
      }
    });
    reject_reserved_keys(choice);
    axis.choices.push_back({.text = label, .layer = choice.without("label").at_the_top()});
  }
  table.reject_unknown_keys();
  table.locate("choice", [&] {
    if (axis.choices.empty())
      throw UserError(fmt::format("axis '{}' has no choices; they are tables [[axis.choice]] with a label", axis.name));
  });
  return axis;
}

}  // namespace

void reject_twice(const TomlTable& table, std::string_view key, const std::string& what, const std::vector<std::string>& texts) {
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    if (seen.insert(text).second) continue;
    table.locate(key, [&] { throw UserError(fmt::format("{} '{}' is there twice", what, text)); });
  }
}

std::vector<LayeredAxis> read_axes(TomlTable& file, const GridSource& source) {
  std::vector<LayeredAxis> axes = read_grid_table(file);
  for (TomlTable& table : file.tables("axis")) {
    LayeredAxis axis = read_axis_table(table);
    const auto same = [&](const LayeredAxis& other) { return other.name == axis.name; };
    table.locate("name", [&] {
      if (std::any_of(axes.begin(), axes.end(), same)) throw UserError(fmt::format("there are two axes '{}'", axis.name));
    });
    axes.push_back(std::move(axis));
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const LayeredAxis& a, const LayeredAxis& b) { return std::tie(a.line, a.column) < std::tie(b.line, b.column); });
  for (const GridSource::Flag& flag : source.axes) {
    const TomlTable table = TomlTable::parse(flag.toml, flag.name);
    LayeredAxis axis = axis_of_key(table, table.leaves().at(0));
    const auto same = [&](const LayeredAxis& other) { return other.name == axis.name; };
    const auto found = std::find_if(axes.begin(), axes.end(), same);
    if (found == axes.end()) {
      axes.push_back(std::move(axis));
    } else {
      *found = std::move(axis);
    }
  }
  if (axes.empty()) {
    throw UserError(
        fmt::format("{}there is nothing to compare: give a table [grid] with lists, or [[axis]] with choices; or flags, as --workers 2,5",
                    source.origin.empty() ? "" : fmt::format("{}: ", source.origin)));
  }
  return axes;
}

}  // namespace starling::lab
