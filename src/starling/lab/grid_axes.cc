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
  if (!grid.contains(leaf.key)) {
    throw UserError(
        fmt::format("{}: in '{}' dots are in quotes, but they separate tables: write the key without quotes", leaf.place, leaf.key));
  }
  LayeredAxis axis{
      .name = axis_name(leaf.key), .choices = grid.choices(leaf.key), .place = leaf.place, .line = leaf.line, .column = leaf.column};
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
  axis.place = table.place("name");
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

// Where an axis sets a key, or a table that the key is in.
std::optional<TomlTable::Leaf> setting_of(const LayeredAxis& axis, const std::string& key) {
  for (const TomlTable::Choice& choice : axis.choices) {
    for (TomlTable::Leaf& leaf : choice.layer.leaves()) {
      if (leaf.key == key || key.starts_with(fmt::format("{}.", leaf.key))) return std::move(leaf);
    }
  }
  return std::nullopt;
}

// The later one would win, and rows be labelled with values that no cell has.
void reject_same_keys(const LayeredAxis& one, const LayeredAxis& other) {
  for (const auto& [first, second] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    for (const TomlTable::Choice& choice : first->choices) {
      for (const TomlTable::Leaf& leaf : choice.layer.leaves()) {
        const std::optional<TomlTable::Leaf> found = setting_of(*second, leaf.key);
        if (!found) continue;
        throw UserError(fmt::format("{}: the axis '{}' sets {}, but so does the axis '{}' ({}): a key belongs to one axis", leaf.place,
                                    first->name, leaf.key, second->name, found->place));
      }
    }
  }
}

bool sets_only(const LayeredAxis& axis, const std::string& key) {
  return std::all_of(axis.choices.begin(), axis.choices.end(), [&](const TomlTable::Choice& choice) {
    const std::vector<TomlTable::Leaf> leaves = choice.layer.leaves();
    return std::all_of(leaves.begin(), leaves.end(), [&](const TomlTable::Leaf& leaf) { return leaf.key == key; });
  });
}

// In the place of an axis of the file that does nothing but set the same key, and with its name, by which the file may know it; otherwise
// after all others.
void add_flag(const GridSource::Flag& flag, std::vector<LayeredAxis>& axes) {
  const TomlTable table = TomlTable::parse(flag.toml, flag.name);
  const std::vector<TomlTable::Leaf> leaves = table.leaves();
  if (leaves.size() != 1) {
    throw UserError(fmt::format("{} is '{}', but it gives values to one key, as in optimizer.lr = [0.01, 0.1]", flag.name, flag.toml));
  }
  LayeredAxis axis = axis_of_key(table, leaves[0]);
  axis.from_flag = true;
  const auto same = [&](const LayeredAxis& other) {
    return !other.from_flag && sets_only(other, leaves[0].key) && setting_of(other, leaves[0].key);
  };
  const auto found = std::find_if(axes.begin(), axes.end(), same);
  if (found == axes.end()) {
    axes.push_back(std::move(axis));
  } else {
    axis.name = found->name;
    *found = std::move(axis);
  }
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
    axes.push_back(std::move(axis));
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const LayeredAxis& a, const LayeredAxis& b) { return std::tie(a.line, a.column) < std::tie(b.line, b.column); });
  for (const GridSource::Flag& flag : source.axes) add_flag(flag, axes);
  for (std::size_t later = 0; later < axes.size(); ++later) {
    for (std::size_t i = 0; i < later; ++i) {
      reject_same_keys(axes[later], axes[i]);
      if (axes[i].name != axes[later].name) continue;
      throw UserError(
          fmt::format("{}: there are two axes '{}'; the other is made by {}", axes[later].place, axes[later].name, axes[i].place));
    }
  }
  return axes;
}

}  // namespace starling::lab
