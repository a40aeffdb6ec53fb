// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/data/dataset.h"
#include "starling/data/partition.h"
#include "starling/lab/grid_axes.h"
#include "starling/run/toml_read.h"
#include "starling/run/toml_table.h"
#include "starling/run/toml_write.h"
#include "starling/strategy/registry.h"

namespace starling::lab {
namespace {

using run::TomlTable;

constexpr std::size_t kMostRuns = 100'000;

std::string strategy_of(const TomlTable& table) {
  run::RunConfig config;
  TomlTable copy = table.copy();
  if (auto strategy = copy.table("strategy")) {
    run::read(*strategy, "name", config.strategy);
    run::read(*strategy, "workers", config.workers);
  }
  return config.strategy_name();
}

// Then the options of the base are not of the strategy that the layer chooses.
bool names_another_strategy(const TomlTable& base, const TomlTable& layer) {
  return layer.contains("strategy.name") && base.contains("strategy.name") && strategy_of(base) != strategy_of(base.merged(layer));
}

// The base with the flags on top. A flag says what all cells have, so no axis may say otherwise.
TomlTable add_flags(TomlTable base, const GridSource& source, const std::vector<LayeredAxis>& axes) {
  for (const GridSource::Flag& flag : source.base) {
    const TomlTable layer = TomlTable::parse(flag.toml, flag.name);
    for (const TomlTable::Leaf& leaf : layer.leaves()) {
      for (const LayeredAxis& axis : axes) {
        const auto says = [&](const TomlTable::Choice& choice) { return choice.layer.contains(leaf.key); };
        if (std::none_of(axis.choices.begin(), axis.choices.end(), says)) continue;
        throw UserError(fmt::format("{} gives {} for all cells, but the axis '{}' says what it is: leave one of them out", flag.name,
                                    leaf.key, axis.name));
      }
    }
    if (names_another_strategy(base, layer)) base = base.without("strategy.options");
    base = base.merged(layer);
  }
  return base;
}

struct CompareTable {
  Grid grid{};
  std::optional<TomlTable> options{};  // By the names of strategies.
};

std::vector<std::string> read_names(TomlTable& table, std::string_view key) {
  std::optional<std::vector<std::string>> names = table.strings(key);
  const std::string full = table.full_key(key);
  if (!names && table.contains(key)) {
    table.locate(key, [&] { throw UserError(fmt::format("{} must be a list of names in quotes, with at least one", full)); });
  }
  if (names) reject_twice(table, key, fmt::format("in {} the name", full), *names);
  return names.value_or(std::vector<std::string>{});
}

void check_seed(std::uint64_t seed) {
  if (seed > kLargestSeed) throw UserError(fmt::format("a seed is {}, but seeds are whole numbers from 0 to {}", seed, kLargestSeed));
}

std::vector<std::uint64_t> count_from(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

void check_seeds(const std::vector<std::uint64_t>& seeds) {
  for (const std::uint64_t seed : seeds) check_seed(seed);
  if (seeds.empty()) throw UserError("there are no seeds; give their number, as in 3, or a list of them, as in [1, 2, 3]");
  if (seeds.size() > kMostRuns) throw UserError(fmt::format("there are {} seeds, but at most {} runs", seeds.size(), kMostRuns));
  if (std::set<std::uint64_t>(seeds.begin(), seeds.end()).size() != seeds.size()) throw UserError("a seed is there twice");
}

std::vector<std::uint64_t> read_seeds(TomlTable& table, std::uint64_t first) {
  std::vector<std::uint64_t> seeds;
  if (!table.is_list("seeds")) {
    std::uint32_t count = 1;
    run::read(table, "seeds", count);
    table.locate("seeds", [&] {
      if (count > kMostRuns) throw UserError(fmt::format("there are {} seeds, but at most {} runs", count, kMostRuns));
    });
    seeds = count_from(first, count);
  } else {
    const std::vector<std::int64_t> numbers = table.integers("seeds").value();
    for (const std::int64_t seed : numbers) {
      table.locate("seeds", [&] {
        if (seed < 0) throw UserError(fmt::format("a seed is {}, but seeds are whole numbers from 0 to {}", seed, kLargestSeed));
      });
      seeds.push_back(static_cast<std::uint64_t>(seed));
    }
  }
  table.locate("seeds", [&] { check_seeds(seeds); });
  return seeds;
}

void check_values(const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (std::find(value_names().begin(), value_names().end(), value) != value_names().end()) continue;
    throw UserError(fmt::format("there is no value '{}'; there are {}.{}", value, fmt::join(value_names(), ", "),
                                nearest_name_hint(value, value_names())));
  }
}

CompareTable read_compare_table(TomlTable& file, std::uint64_t first_seed) {
  CompareTable result;
  Grid& grid = result.grid;
  std::optional<TomlTable> table = file.table("compare");
  grid.seeds = {first_seed};
  if (!table) return result;
  run::read(*table, "title", grid.title);
  grid.seeds = read_seeds(*table, first_seed);
  grid.values = read_names(*table, "values");
  table->locate("values", [&] { check_values(grid.values); });
  grid.rows = read_names(*table, "rows");
  grid.columns = read_names(*table, "columns");
  run::read(*table, "keep_checkpoints", grid.keep_checkpoints);
  result.options = table->table("options");
  table->reject_unknown_keys();
  return result;
}

// Every axis is on one side: those named, and the rest on the other; without any, the first axis makes the rows.
void lay_out(const TomlTable& file, Grid& grid) {
  std::vector<std::string> names;
  for (const Axis& axis : grid.axes) names.push_back(axis.name);
  const auto check = [&](std::string_view key, const std::vector<std::string>& side) {
    for (const std::string& name : side) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      file.locate(key, [&] {
        throw UserError(
            fmt::format("there is no axis '{}'; there are {}.{}", name, fmt::join(names, ", "), nearest_name_hint(name, names)));
      });
    }
  };
  check("compare.rows", grid.rows);
  check("compare.columns", grid.columns);
  const bool has_rows = !grid.rows.empty();
  const bool has_columns = !grid.columns.empty();
  if (!has_rows && !has_columns) grid.rows = {names[0]};
  for (const std::string& name : names) {
    const bool in_rows = std::find(grid.rows.begin(), grid.rows.end(), name) != grid.rows.end();
    const bool in_columns = std::find(grid.columns.begin(), grid.columns.end(), name) != grid.columns.end();
    file.locate("compare", [&] {
      if (in_rows && in_columns) throw UserError(fmt::format("the axis '{}' is in compare.rows and in compare.columns", name));
      if (!in_rows && !in_columns && has_rows && has_columns)
        throw UserError(fmt::format("the axis '{}' is neither in compare.rows nor in compare.columns", name));
    });
    if (!in_rows && !in_columns) (has_columns && !has_rows ? grid.rows : grid.columns).push_back(name);
  }
}

// What is wrong with one value, whatever the others are: found here, where the line is known.
void check_values_alone(const TomlTable& table, const run::RunConfig& config, const strategy::Registry& registry) {
  const auto check = [&](const std::string& key, const std::function<void(run::RunConfig&)>& set) {
    if (!table.contains(key)) return;
    run::RunConfig alone;
    set(alone);
    table.locate(key, [&] {
      try {
        run::validate(alone, registry);
      } catch (const UserError& error) {
        throw UserError(fmt::format("{}: {}", key, error.what()));
      }
    });
  };
  check("train.epochs", [&](run::RunConfig& alone) { alone.epochs = config.epochs; });
  check("strategy.workers", [&](run::RunConfig& alone) { alone.workers = config.workers; });
  check("data.validation", [&](run::RunConfig& alone) { alone.validation = config.validation; });
  check("data.name", [&](run::RunConfig& alone) { alone.data = config.data; });
  check("data.folder", [&](run::RunConfig& alone) { alone.data_folder = config.data_folder; });
  check("model.name", [&](run::RunConfig& alone) { alone.model = config.model; });
}

// Mistakes in names that only the whole program knows.
void check_names(TomlTable& table, const run::RunConfig& config, const strategy::Registry& registry) {
  table.locate("strategy.name", [&] { static_cast<void>(registry.find(config.strategy_name())); });
  table.locate("fabric.name", [&] { static_cast<void>(run::make_fabric({.name = config.fabric.name, .sim = {}})); });
  const auto known = [](const std::string& text, std::vector<std::string> names, std::string_view what) {
    for (std::string& name : names) name = name.substr(0, name.find(':'));
    const std::string name = text.substr(0, text.find(':'));
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    throw UserError(
        fmt::format("there is no {} '{}'; there are {}.{}", what, name, fmt::join(names, ", "), nearest_name_hint(name, names)));
  };
  table.locate("data.name", [&] { known(config.data, data::dataset_names(), "data set"); });
  table.locate("data.partition", [&] { known(config.partition, data::partition_names(), "partition"); });
}

run::RunConfig config_of(TomlTable& table, const strategy::Registry& registry) {
  for (const char* own : {"compare", "grid"}) static_cast<void>(table.table(own));
  static_cast<void>(table.tables("axis"));
  run::RunConfig config = run::read_run_config(table);
  config.out.clear();
  check_names(table, config, registry);
  check_values_alone(table, config, registry);
  // Cells run beside each other, one on each core. It changes no result.
  config.fabric.sim.pool_threads = 1;
  run::validate(config, registry);
  return config;
}

class CellMaker {
 public:
  CellMaker(const TomlTable& base, const std::vector<LayeredAxis>& axes, const std::optional<TomlTable>& options)
      : base_(base), axes_(axes), options_(options) {}

  std::vector<Cell> all() {
    std::size_t count = 1;
    for (const LayeredAxis& axis : axes_) {
      count *= axis.choices.size();
      if (count > kMostRuns) throw UserError(fmt::format("the grid has more than {} cells", kMostRuns));
    }
    std::vector<Cell> cells;
    for (std::size_t number = 0; number < count; ++number) cells.push_back(make(number));
    if (options_) reject_unused_options();
    return cells;
  }

 private:
  Cell make(std::size_t number) {
    Cell cell;
    cell.labels.resize(axes_.size());
    std::vector<std::size_t> chosen(axes_.size());
    for (std::size_t i = axes_.size(); i-- > 0;) {
      chosen[i] = number % axes_[i].choices.size();
      number /= axes_[i].choices.size();
      cell.labels[i] = axes_[i].choices[chosen[i]].text;
    }
    TomlTable layers = axes_[0].choices[chosen[0]].layer.copy();
    for (std::size_t i = 1; i < axes_.size(); ++i) layers = layers.merged(axes_[i].choices[chosen[i]].layer);
    try {
      TomlTable table = put_together(layers);
      cell.config = config_of(table, registry_);
      for (const char* key : {"model.name", "data.name", "data.folder", "data.partition"}) {
        if (table.contains(key)) cell.places[key] = table.place(key);
      }
    } catch (const UserError& error) {
      throw UserError(fmt::format("{} (in the cell {})", error.what(), name_of(cell)));
    }
    cell.folder = folder_of(cell.labels);
    return cell;
  }

  // Options of the base belong to its strategy: where an axis chooses another, they are left out. Those of axes always count.
  TomlTable put_together(const TomlTable& layers) {
    const std::string strategy = strategy_of(base_.merged(layers));
    strategies_.insert(strategy);
    TomlTable base = names_another_strategy(base_, layers) ? base_.without("strategy.options") : base_.copy();
    if (options_ && options_->contains(strategy)) {
      used_.insert(strategy);
      base = base.merged(options_->moved(strategy, "strategy.options"));
    }
    return base.merged(layers);
  }

  void reject_unused_options() const {
    for (const std::string& name : options_->keys()) {
      if (used_.contains(name)) continue;
      const std::vector<std::string> used(strategies_.begin(), strategies_.end());
      options_->locate(name, [&] {
        throw UserError(fmt::format("these are options of strategy '{}', but no cell has it; the strategies are {}.{}", name,
                                    fmt::join(used, ", "), nearest_name_hint(name, used)));
      });
    }
  }

  // Readable, and different for different labels: where characters had to be replaced, a part of a digest tells.
  static std::string folder_of(const std::vector<std::string>& labels) {
    constexpr std::size_t kLongest = 100;
    constexpr std::size_t kDigits = 8;
    std::string name = fmt::format("{}", fmt::join(labels, "_"));
    // Neither hidden, nor an option for those who name it on a command line.
    const std::string_view prefix = name[0] == '.' || name[0] == '-' ? "_" : "";
    bool exact = name.size() <= kLongest && prefix.empty();
    for (const std::string& label : labels) exact = exact && label.find('_') == std::string::npos;
    for (char& character : name) {
      if (std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '.' || character == '-' || character == '_') continue;
      character = '-';
      exact = false;
    }
    if (exact) return fmt::format("cells/{}", name);
    const std::string text = fmt::format("{}", fmt::join(labels, std::string_view("\0", 1)));
    return fmt::format("cells/{}{}-{}", prefix, name.substr(0, kLongest), sha256_hex(std::as_bytes(std::span(text))).substr(0, kDigits));
  }

  const TomlTable& base_;
  const std::vector<LayeredAxis>& axes_;
  const std::optional<TomlTable>& options_;
  strategy::Registry registry_ = strategy::Registry::built_in();
  std::set<std::string> used_{};
  std::set<std::string> strategies_{};
};

// "easgd.rho=0.9" on top of the options of the file.
std::optional<TomlTable> add_settings(std::optional<TomlTable> options, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    run::RunConfig parsed;
    parsed.strategy = setting.substr(0, setting.find('.'));
    run::parse_setting(setting, "--set", parsed);
    const auto& [name, value] = *parsed.options.begin();
    run::TomlWriter writer;
    writer.put(fmt::format("{}.{}", run::toml_key(parsed.strategy), run::toml_key(name)), value);
    TomlTable layer = TomlTable::parse(writer.text(), "--set");
    options = options ? options->merged(layer) : std::move(layer);
  }
  return options;
}

std::string write_grid(const Grid& grid, const TomlTable& base, const std::vector<LayeredAxis>& axes,
                       const std::optional<TomlTable>& options) {
  run::TomlWriter writer;
  writer.comment("A comparison with starling compare, as it was put together from a file and flags.");
  std::string text = writer.text();
  text += base.without("compare").without("grid").without("axis").to_text();
  run::TomlWriter compare;
  compare.put("compare.title", grid.title);
  text += fmt::format("compare.seeds = [{}]\n", fmt::join(grid.seeds, ", "));
  compare.put("compare.values", grid.values);
  if (!grid.rows.empty()) compare.put("compare.rows", grid.rows);
  if (!grid.columns.empty()) compare.put("compare.columns", grid.columns);
  compare.put("compare.keep_checkpoints", grid.keep_checkpoints);
  text += compare.text();
  if (options) text += options->to_text("compare.options");
  for (const LayeredAxis& axis : axes) {
    run::TomlWriter heading;
    heading.element("axis");
    heading.put("name", axis.name);
    text += fmt::format("\n{}", heading.text());
    for (const TomlTable::Choice& choice : axis.choices) {
      run::TomlWriter label;
      label.element("axis.choice");
      label.put("label", choice.text);
      text += fmt::format("{}{}", label.text(), choice.layer.to_text());
    }
  }
  return text;
}

bool has_flags(const GridSource& source) {
  return source.origin.empty() || !source.base.empty() || !source.axes.empty() || !source.settings.empty() || source.seeds ||
         source.seed_count || source.values || source.title;
}

void set_flags(const GridSource& source, std::uint64_t first_seed, Grid& grid) {
  if (source.title) grid.title = *source.title;
  if (source.seed_count) {
    if (*source.seed_count > kMostRuns) throw UserError(fmt::format("--seeds is {}, but at most {}", *source.seed_count, kMostRuns));
    grid.seeds = count_from(first_seed, *source.seed_count);
  }
  if (source.seeds) grid.seeds = *source.seeds;
  check_seeds(grid.seeds);
  if (source.values) grid.values = *source.values;
  check_values(grid.values);
  if (grid.values.empty()) grid.values = {"test_accuracy"};
}

// A table whose name is misspelt is the likelier mistake, so that is looked for first.
[[noreturn]] void reject_empty_grid(const TomlTable& file, const GridSource& source) {
  TomlTable table = file.copy();
  static_cast<void>(config_of(table, strategy::Registry::built_in()));
  throw UserError(
      fmt::format("{}there is nothing to compare: give a table [grid] with lists, or [[axis]] with choices; or flags, as --workers 2,5",
                  source.origin.empty() ? "" : fmt::format("{}: ", source.origin)));
}

}  // namespace

const std::vector<std::string>& value_names() {
  static const std::vector<std::string> kNames{"test_accuracy", "test_loss",  "train_loss",    "seconds", "samples_per_second",
                                               "staleness",     "bytes_sent", "idle_fraction", "steps",   "samples"};
  return kNames;
}

run::RunConfig Cell::config_with(std::uint64_t seed) const {
  run::RunConfig result = config;
  result.fabric.sim.seed = seed;
  return result;
}

std::string Cell::path(std::uint64_t seed) const { return fmt::format("{}/seed-{}", folder, seed); }

void Cell::locate(const std::string& key, const std::function<void()>& check) const {
  try {
    check();
  } catch (const UserError& error) {
    const auto found = places.find(key);
    const std::string where = found == places.end() ? "" : fmt::format("{}: {}: ", found->second, key);
    throw UserError(fmt::format("{}{} (in the cell {})", where, error.what(), name_of(*this)));
  }
}

std::string name_of(const Cell& cell) { return fmt::format("{}", fmt::join(cell.labels, ", ")); }

Grid read_grid(const GridSource& source) {
  TomlTable file = TomlTable::parse(source.text, source.origin.empty() ? "flags" : source.origin);
  const std::vector<LayeredAxis> axes = read_axes(file, source);
  if (axes.empty()) reject_empty_grid(file, source);
  const TomlTable base = add_flags(file.copy(), source, axes);
  TomlTable top = base.copy();
  std::uint64_t first_seed = 1;
  std::string out;
  for (const char* name : {"fabric", "run"}) {
    std::optional<TomlTable> table = top.table(name);
    if (!table) continue;
    run::read(*table, "seed", first_seed);
    table->locate("seed", [&] { check_seed(first_seed); });
  }
  if (auto table = top.table("run")) {
    run::read(*table, "out", out);
  }
  CompareTable compare = read_compare_table(file, first_seed);
  Grid& grid = compare.grid;
  set_flags(source, first_seed, grid);
  const std::optional<TomlTable> options = add_settings(std::move(compare.options), source.settings);
  for (const LayeredAxis& axis : axes) grid.axes.push_back({.name = axis.name, .labels = axis.labels()});
  grid.cells = CellMaker(base, axes, options).all();
  if (grid.cells.size() * grid.seeds.size() > kMostRuns) {
    throw UserError(
        fmt::format("the grid has {} cells, which with {} seeds are more than {} runs", grid.cells.size(), grid.seeds.size(), kMostRuns));
  }
  grid.out = out;
  grid.toml = has_flags(source) ? write_grid(grid, base, axes, options) : source.text;
  lay_out(file, grid);
  return std::move(compare.grid);
}

}  // namespace starling::lab
