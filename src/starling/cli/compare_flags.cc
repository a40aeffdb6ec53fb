// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/compare_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/run/toml_table.h"
#include "starling/run/toml_write.h"

namespace starling::cli {
namespace {

std::vector<std::string> split(const std::string& text, std::string_view what) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (parts.back().empty()) throw UserError(fmt::format("{} is '{}', but it is a list as in a,b,c", what, text));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

// What reads as a number or a truth value in TOML is one, all else a string.
std::string to_toml_value(const std::string& text) {
  try {
    run::TomlTable table = run::TomlTable::parse(fmt::format("value = {}", text), "");
    if (table.keys().size() == 1 && table.scalar("value")) return text;
  } catch (const UserError&) {
    return run::toml_quoted(text);
  }
  return run::toml_quoted(text);
}

std::string to_toml_list(const std::string& text, std::string_view what) {
  if (text.starts_with('[')) return text;  // As it would stand in a file.
  std::vector<std::string> values;
  for (const std::string& part : split(text, what)) values.push_back(to_toml_value(part));
  return fmt::format("[{}]", fmt::join(values, ", "));
}

lab::GridSource::Flag grid_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw UserError(fmt::format("--grid is '{}', but it is given as KEY=V1,V2,..., as in optimizer.lr=0.01,0.1", text));
  }
  return {.name = "--grid", .toml = fmt::format("{} = {}", text.substr(0, equals), to_toml_list(text.substr(equals + 1), "--grid"))};
}

// Flags that were given, each as the key it stands for.
class BaseFlags {
 public:
  template <class Value>
  void add(const char* name, std::string_view key, const std::optional<Value>& value) {
    if (!value) return;
    run::TomlWriter writer;
    if constexpr (std::is_same_v<Value, std::size_t> || std::is_same_v<Value, std::uint64_t>) {
      writer.put(key, std::uint64_t{*value});
    } else {
      writer.put(key, *value);
    }
    flags_.push_back({.name = name, .toml = writer.text()});
  }

  void add(const char* name, std::string toml) { flags_.push_back({.name = name, .toml = std::move(toml)}); }

  std::vector<lab::GridSource::Flag> take() { return std::move(flags_); }

 private:
  std::vector<lab::GridSource::Flag> flags_{};
};

void add_schedule(const TrainFlags& flags, BaseFlags& base) {
  if (flags.schedule) {
    optim::ScheduleOptions schedule;
    run::parse_schedule(*flags.schedule, "--schedule", schedule);
    run::TomlWriter writer;
    writer.put("schedule.kind", schedule.kind);
    if (schedule.kind == "polynomial") writer.put("schedule.power", schedule.power);
    if (schedule.kind == "multi-step") {
      writer.put("schedule.milestones", schedule.milestones);
      writer.put("schedule.gamma", schedule.gamma);
    }
    if (schedule.kind == "cosine") writer.put("schedule.final_lr", schedule.final_lr);
    base.add("--schedule", writer.text());
  }
  base.add("--warmup", "schedule.warmup", flags.warmup);
  if (flags.batch_warmup) {
    optim::ScheduleOptions schedule;
    run::parse_batch_warmup(*flags.batch_warmup, "--batch-warmup", schedule);
    run::TomlWriter writer;
    writer.put("schedule.batch_warmup", schedule.batch_warmup_epochs);
    writer.put("schedule.batch_warmup_from", std::uint64_t{schedule.batch_warmup_from});
    base.add("--batch-warmup", writer.text());
  }
  if (flags.two_stage) base.add("--two-stage", "schedule.two_stage = true");
}

void add_fabric(const TrainFlags& flags, BaseFlags& base) {
  base.add("--fabric", "fabric.name", flags.fabric);
  if (!flags.delays.empty()) {
    run::TomlWriter writer;
    writer.put("delay", flags.delays);
    base.add("--delay", writer.text());
  }
  if (!flags.speeds.empty()) {
    run::RunConfig config;
    std::vector<std::string> rules;
    for (const std::string& speed : flags.speeds) run::parse_speed(speed, "--speed", config);
    for (const fabric::SpeedRule& rule : config.fabric.sim.speeds) {
      rules.push_back(fmt::format("{{ranks = {}, factor = {:#}}}", run::toml_quoted(rule.ranks.text()), rule.factor));
    }
    base.add("--speed", fmt::format("speed = [{}]", fmt::join(rules, ", ")));
  }
}

std::vector<lab::GridSource::Flag> base_of(const TrainFlags& flags) {
  BaseFlags base;
  base.add("--model", "model.name", flags.model);
  base.add("--data", "data.name", flags.data);
  base.add("--data-folder", "data.folder", flags.data_folder);
  base.add("--partition", "data.partition", flags.partition);
  base.add("--validation", "data.validation", flags.validation);
  base.add("--strategy", "strategy.name", flags.strategy);
  base.add("--servers", "strategy.servers", flags.servers);
  base.add("--codec", "strategy.codec", flags.codec);
  base.add("--epochs", "train.epochs", flags.epochs);
  base.add("--batch", "train.batch", flags.batch);
  base.add("--on-nan", "train.on_nan", flags.on_nan);
  base.add("--optimizer", "optimizer.name", flags.optimiser);
  base.add("--lr", "optimizer.lr", flags.lr);
  base.add("--momentum", "optimizer.momentum", flags.momentum);
  base.add("--weight-decay", "optimizer.weight_decay", flags.weight_decay);
  base.add("--clip-norm", "optimizer.clip_norm", flags.clip_norm);
  add_schedule(flags, base);
  base.add("--seed", "run.seed", flags.seed);
  base.add("--evaluate-every", "run.evaluate_every", flags.evaluate_every);
  base.add("--checkpoint-every", "run.checkpoint_every", flags.checkpoint_every);
  base.add("--checkpoint-interval", "run.checkpoint_interval", flags.checkpoint_interval);
  base.add("--metrics-every", "run.metrics_every", flags.metrics_every);
  base.add("--snapshots", "run.snapshots", flags.snapshots);
  add_fabric(flags, base);
  return base.take();
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UserError(fmt::format("--seeds has '{}', but it is a number of seeds, as 3, or a list of them, as 1,2,3", text));
  }
  if (value > lab::kLargestSeed) {
    throw UserError(fmt::format("--seeds has '{}', but seeds are whole numbers from 0 to {}", text, lab::kLargestSeed));
  }
  return value;
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,%+@-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char character : text) result += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return result + '\'';
}

void add_compare_flags(CLI::App& command, CompareFlags& flags) {
  const CLI::Validator given([](const std::string& text) { return text.empty() ? std::string("it is empty") : std::string(); }, "");
  add_train_flags(command, flags.train);
  // Those of a single run.
  for (const char* name : {"--workers", "--out", "--config", "--resume", "--checkpoint", "--trace", "--json", "--watch", "--tensorboard"}) {
    if (CLI::Option* option = command.get_option_no_throw(name)) command.remove_option(option);
  }
  command.add_option("FILE", flags.file, "TOML: a training configuration with [compare], [grid] and [[axis]]")->check(given);
  command.add_option("--strategies", flags.strategies, "An axis of strategies, as sync,async,ea-wild")->check(given);
  command.add_option("--workers", flags.workers, "An axis of numbers of workers, as 2,5,10; or one number for all cells [1]")->check(given);
  command
      .add_option("--grid", flags.grid,
                  "KEY=V1,V2,...: an axis of any key of a training file, as optimizer.lr=0.01,0.1; may be given again")
      ->allow_extra_args(false);
  command.add_option("--seeds", flags.seeds, "How many seeds for every cell, or a list of them, as 1,2,3 [1]")->check(given);
  command.add_option("--values", flags.values, "What tables show, as test_accuracy,staleness [test_accuracy]")->check(given);
  command.add_option("--title", flags.title, "Of the comparison, for the report");
  command.add_option("--jobs", flags.jobs, "sim: how many runs go on at once [one per core]")->check(CLI::Range(1, 1024));
  command.add_flag("--fresh", flags.fresh, "Run cells anew whose configuration has changed since they were run");
  command.add_flag("--markdown", flags.markdown, "Print tables in Markdown");
  command.add_flag("--dry-run", flags.dry_run, "Only list the cells, with the keys by which they differ");
  command
      .add_option("--out", flags.train.out,
                  "The folder [runs/ and the file's name, or the next free runs/compare-1, -2, ..., unless one of\nthem is this comparison "
                  "and unfinished]")
      ->check(given);
  command.footer(
      "Examples:\n"
      "  starling compare table.toml                              into runs/table; called again it goes on there\n"
      "  starling compare --strategies sync,async,ea-wild --workers 2,5,10 --seeds 5 --fabric sim\n"
      "  starling compare --grid optimizer.lr=0.005,0.02 --grid strategy.codec=fp32,topk:0.01 --workers 4 --fabric sim\n"
      "  starling compare table.toml --epochs 1 --dry-run\n"
      "Exit codes: 0 done, 1 a run failed, 2 a mistake in flags or files, 130 interrupted (the same command goes on).");
}

lab::GridSource to_source(const CompareFlags& flags) {
  lab::GridSource source;
  if (!flags.file.empty()) {
    source.text = read_file(flags.file, "comparison");
    source.origin = flags.file;
  }
  source.base = base_of(flags.train);
  if (!flags.workers.empty() && flags.workers.find(',') == std::string::npos) {
    source.base.push_back({.name = "--workers", .toml = fmt::format("strategy.workers = {}", to_toml_value(flags.workers))});
  } else if (!flags.workers.empty()) {
    source.axes.push_back({.name = "--workers", .toml = fmt::format("strategy.workers = {}", to_toml_list(flags.workers, "--workers"))});
  }
  if (!flags.strategies.empty()) {
    const std::string list = to_toml_list(flags.strategies, "--strategies");
    source.axes.insert(source.axes.begin(), {.name = "--strategies", .toml = fmt::format("strategy.name = {}", list)});
  }
  for (const std::string& axis : flags.grid) source.axes.push_back(grid_axis(axis));
  source.settings = flags.train.settings;
  if (!flags.seeds.empty()) {
    const std::vector<std::string> parts = split(flags.seeds, "--seeds");
    std::vector<std::uint64_t> seeds;
    seeds.reserve(parts.size());
    for (const std::string& part : parts) seeds.push_back(parse_seed(part));
    if (parts.size() == 1) {
      source.seed_count = seeds[0];
    } else {
      source.seeds = seeds;
    }
  }
  if (!flags.values.empty()) source.values = split(flags.values, "--values");
  source.title = flags.title;
  return source;
}

std::string command_of(const CLI::App& command, bool with_folder) {
  std::string file;
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    if (option->count() == 0 || name == "help" || name == "out" || name == "jobs" || name == "fresh" || name == "markdown") continue;
    if (name == "FILE") {
      const std::filesystem::path path = option->results()[0];
      file = fmt::format(" {}", shell_word(with_folder ? path.string() : path.filename().string()));
    } else if (option->get_expected_max() == 0) {
      text += fmt::format(" --{}", name);
    } else {
      for (const std::string& value : option->results()) {
        text += fmt::format(" --{}{}{}", name, value.starts_with('-') ? '=' : ' ', shell_word(value));
      }
    }
  }
  return fmt::format("starling compare{}{}", file, text);
}

}  // namespace starling::cli
