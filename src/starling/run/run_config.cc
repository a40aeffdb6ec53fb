// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/run/toml_read.h"
#include "starling/run/toml_write.h"

namespace starling::run {
namespace {

void check_optimiser(const optim::OptimiserOptions& options) {
  params::Layout layout;
  layout.add("any", {1});
  (void)optim::make_optimiser(options, layout);
}

void read_optimiser(TomlTable& table, RunConfig& config) {
  optim::OptimiserOptions& options = config.optimiser;
  read(table, "name", options.name);
  table.locate("name", [&] { check_optimiser({.name = options.name}); });
  read(table, "lr", config.schedule.lr);
  table.locate("lr", [&] { optim::Schedule{{.lr = config.schedule.lr}}; });
  read(table, "momentum", options.momentum);
  read(table, "beta1", options.beta1);
  read(table, "beta2", options.beta2);
  read(table, "epsilon", options.epsilon);
  read(table, "trust", options.trust);
  read(table, "weight_decay", options.weight_decay);
  read(table, "clip_norm", options.clip_norm);
  read(table, "clip_value", options.clip_value);
  table.reject_unknown_keys();
}

void read_strategy(TomlTable& table, RunConfig& config) {
  read(table, "name", config.strategy);
  read(table, "workers", config.workers);
  if (const auto servers = table.integer("servers")) {
    int value = 0;
    read(table, "servers", value);
    config.servers = value;
  }
  read(table, "codec", config.codec);
  table.locate("codec", [&] {
    params::Layout layout;
    layout.add("any", {2, 2});
    (void)codec::make_codec(config.codec, {.layout = layout});
  });
  table.locate("workers", [&] {
    if (config.workers < 1) throw UserError(fmt::format("the number of workers is {}, but there must be at least 1", config.workers));
  });
  if (auto options = table.table("options")) {
    for (const std::string& key : options->keys()) config.options[key] = *options->scalar(key);
    // A strategy that is not built in is looked at when the run is made ready.
    const strategy::Registry registry = strategy::Registry::built_in();
    for (const strategy::Description& description : registry.all()) {
      if (description.name != config.strategy_name()) continue;
      strategy::Settings settings(description.name, description.options);
      for (const auto& entry : config.options) options->locate(entry.first, [&] { settings.set(entry.first, entry.second); });
    }
  }
  table.reject_unknown_keys();
}

void read_schedule(TomlTable& table, optim::ScheduleOptions& schedule) {
  read(table, "kind", schedule.kind);
  table.locate("kind", [&] { optim::Schedule{{.kind = schedule.kind, .milestones = {1}}}; });
  read(table, "power", schedule.power);
  read(table, "milestones", schedule.milestones);
  read(table, "gamma", schedule.gamma);
  read(table, "final_lr", schedule.final_lr);
  read(table, "warmup", schedule.warmup_epochs);
  read(table, "warmup_from", schedule.warmup_from);
  read(table, "batch_warmup", schedule.batch_warmup_epochs);
  read(table, "batch_warmup_from", schedule.batch_warmup_from);
  read(table, "two_stage", schedule.two_stage);
  table.reject_unknown_keys();
}

void read_run(TomlTable& table, bool fabric_has_seed, RunConfig& config) {
  const std::uint64_t fabric_seed = config.fabric.sim.seed;
  read(table, "seed", config.fabric.sim.seed);
  table.locate("seed", [&] {
    if (fabric_has_seed && config.seed() != fabric_seed) {
      throw UserError(
          fmt::format("run.seed is {}, but fabric.seed is {}; a run has one seed, so leave one of them out", config.seed(), fabric_seed));
    }
  });
  read(table, "out", config.out);
  read(table, "evaluate_every", config.evaluate_every);
  read(table, "checkpoint_every", config.checkpoint_every);
  read(table, "checkpoint_interval", config.checkpoint_interval);
  read(table, "metrics_every", config.metrics_every);
  read(table, "snapshots", config.snapshots);
  table.reject_unknown_keys();
}

void write_optimiser(const RunConfig& config, TomlWriter& writer) {
  const optim::OptimiserOptions& options = config.optimiser;
  writer.table("optimizer");
  writer.put("name", options.name);
  writer.put("lr", config.schedule.lr);
  writer.put("momentum", options.momentum);
  writer.put("beta1", options.beta1);
  writer.put("beta2", options.beta2);
  writer.put("epsilon", options.epsilon);
  writer.put("trust", options.trust);
  writer.put("weight_decay", options.weight_decay);
  writer.put("clip_norm", options.clip_norm);
  writer.put("clip_value", options.clip_value);
}

void write_schedule(const optim::ScheduleOptions& schedule, TomlWriter& writer) {
  writer.table("schedule");
  writer.put("kind", schedule.kind);
  writer.put("power", schedule.power);
  writer.put("milestones", schedule.milestones);
  writer.put("gamma", schedule.gamma);
  writer.put("final_lr", schedule.final_lr);
  writer.put("warmup", schedule.warmup_epochs);
  writer.put("warmup_from", schedule.warmup_from);
  writer.put("batch_warmup", schedule.batch_warmup_epochs);
  writer.put("batch_warmup_from", schedule.batch_warmup_from);
  writer.put("two_stage", schedule.two_stage);
}

double parse_number(std::string_view text, std::string_view what, const std::string& whole, std::string_view valid) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UserError(fmt::format("{} is '{}', but it is given as {}; '{}' is no number", what, whole, valid, text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Configuration and metrics are UTF-8.
bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

const std::string& RunConfig::strategy_name() const {
  static const std::string kSequential = "sequential";
  static const std::string kSync = "sync";
  if (!strategy.empty()) return strategy;
  return workers == 1 ? kSequential : kSync;
}

strategy::Settings RunConfig::settings(const strategy::Description& description) const {
  strategy::Settings result(description.name, description.options);
  for (const auto& [name, value] : options) result.set(name, value);
  return result;
}

strategy::Roles RunConfig::roles(const strategy::Description& description) const {
  return {.workers = workers,
          .servers = servers.value_or(description.needs_servers ? 1 : 0),
          .generators = description.needs_generator ? 1 : 0};
}

optim::ScheduleOptions RunConfig::schedule_options() const {
  optim::ScheduleOptions result = schedule;
  result.epochs = static_cast<double>(std::max<std::uint64_t>(epochs, 1));
  return result;
}

RunConfig read_run_config(TomlTable& file) {
  RunConfig config;
  config.fabric = read_fabric_tables(file);
  bool fabric_has_seed = false;
  if (auto table = file.table("fabric")) fabric_has_seed = table->integer("seed").has_value();
  if (auto table = file.table("model")) {
    read(*table, "name", config.model);
    table->reject_unknown_keys();
  }
  if (auto table = file.table("data")) {
    read(*table, "name", config.data);
    read(*table, "folder", config.data_folder);
    read(*table, "partition", config.partition);
    read(*table, "validation", config.validation);
    table->reject_unknown_keys();
  }
  if (auto table = file.table("train")) {
    read(*table, "epochs", config.epochs);
    read(*table, "batch", config.schedule.batch);
    table->locate("batch", [&] { optim::Schedule{{.batch = config.schedule.batch}}; });
    if (const auto value = table->string("on_nan")) {
      table->locate("on_nan", [&] { config.on_nan = parse_on_nan(*value, "on_nan"); });
    }
    table->reject_unknown_keys();
  }
  if (auto table = file.table("strategy")) read_strategy(*table, config);
  // They mean the workers, so their number must be known.
  if (const auto delays = file.strings("delay")) {
    file.locate("delay", [&] {
      for (const std::string& delay : *delays) parse_delay(delay, "delay", config);
    });
  }
  if (auto table = file.table("optimizer")) read_optimiser(*table, config);
  if (auto table = file.table("schedule")) read_schedule(*table, config.schedule);
  if (auto table = file.table("run")) read_run(*table, fabric_has_seed, config);
  file.reject_unknown_keys();
  return config;
}

RunConfig parse_run_config(const std::string& text, const std::string& origin) {
  TomlTable file = TomlTable::parse(text, origin);
  return read_run_config(file);
}

RunConfig read_run_config(const std::string& path) { return parse_run_config(read_file(path, "configuration file"), path); }

namespace {

// Whether the strategy can do with this partition and these validation samples.
void check_samples(const RunConfig& config, const strategy::Description& description, const strategy::Settings& settings) {
  const std::string& name = description.name;
  if (config.partition == "queue" && strategy::in_lockstep(description, settings)) {
    throw UserError(fmt::format(
        "the partition is 'queue', from which each worker takes as many batches as it can, but in strategy {} all take equally many steps: "
        "use shared",
        name));
  }
  if (description.needs_generator && config.partition != "shared" && config.partition != "queue") {
    throw UserError(fmt::format("the partition is '{}', but strategy {} deals the batches of one stream to all workers: leave it out",
                                config.partition, name));
  }
  constexpr double kMost = 0.5;
  if (!(config.validation >= 0 && config.validation <= kMost)) {
    throw UserError(fmt::format("validation is {}, but it is a fraction of the training samples from 0 to {}", config.validation, kMost));
  }
  if (description.own_models && settings.choice("result") == "best" && config.validation == 0) {
    throw UserError(fmt::format("{}.result is best, which needs samples to judge by: hold some out, as with --validation 0.1", name));
  }
}

}  // namespace

void validate(const RunConfig& config, const strategy::Registry& registry) {
  for (const std::string* text : {&config.model, &config.data, &config.data_folder, &config.out}) {
    if (!is_utf8(*text)) throw UserError(fmt::format("'{}' is not UTF-8: names of models, data and folders must be", *text));
  }
  if (config.model.empty()) throw UserError("the model is ''; give a name such as lenet5, or a text such as 'dense 10'");
  if (config.data.empty()) throw UserError("the data set is ''; give a name such as fashion-mnist");
  constexpr std::uint64_t kMostEpochs = 1'000'000'000;
  if (config.epochs > kMostEpochs) throw UserError(fmt::format("epochs is {}, but it is at most {}", config.epochs, kMostEpochs));
  const strategy::Description& description = registry.find(config.strategy_name());
  constexpr int kMostRanks = 100'000;
  if (config.workers < 1 || config.workers > kMostRanks) {
    throw UserError(fmt::format("the number of workers is {}, but it is between 1 and {}", config.workers, kMostRanks));
  }
  if (config.servers.value_or(0) < 0 || config.servers.value_or(0) > kMostRanks) {
    throw UserError(fmt::format("the number of servers is {}, but it is between 0 and {}", *config.servers, kMostRanks));
  }
  const strategy::Roles roles = config.roles(description);
  if (config.fabric.sim.ranks != 1 && config.fabric.sim.ranks != roles.ranks()) {
    throw UserError(fmt::format("fabric.ranks is {}, but {} workers and {} servers{} are {} ranks: leave it out", config.fabric.sim.ranks,
                                roles.workers, roles.servers, roles.generators > 0 ? " and a generator" : "", roles.ranks()));
  }
  if (config.schedule.two_stage && config.codec.starts_with("dgc")) {
    throw UserError(
        "--codec dgc has the momentum in the codec from the start, so there is no first stage without it: leave --two-stage out");
  }
  const strategy::Settings settings = config.settings(description);
  strategy::check_use(description, settings, roles, config.codec, config.optimiser);
  check_samples(config, description, settings);
  constexpr std::uint64_t kLargestSeed = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (config.seed() > kLargestSeed) throw UserError(fmt::format("the seed is {}, but it is at most {}", config.seed(), kLargestSeed));
  FabricConfig fabric = config.fabric;
  fabric.sim.ranks = roles.ranks();
  validate(fabric);
  const optim::Schedule schedule(config.schedule_options());
  check_optimiser(config.optimiser);
}

std::string to_toml(const RunConfig& config) {
  TomlWriter writer;
  writer.comment("The configuration of a run of starling train, with all defaults; --config reads it again.");
  writer.table("model");
  writer.put("name", config.model);
  writer.table("data");
  writer.put("name", config.data);
  writer.put("folder", config.data_folder);
  writer.put("partition", config.partition);
  writer.put("validation", config.validation);
  writer.table("strategy");
  writer.put("name", config.strategy_name());
  writer.put("workers", config.workers);
  if (config.servers) writer.put("servers", *config.servers);
  writer.put("codec", config.codec);
  if (!config.options.empty()) {
    writer.table("strategy.options");
    for (const auto& [name, value] : config.options) writer.put(name, value);
  }
  writer.table("train");
  writer.put("epochs", config.epochs);
  writer.put("batch", config.schedule.batch);
  writer.put("on_nan", config.on_nan == OnNan::stop ? "stop" : "skip");
  write_optimiser(config, writer);
  write_schedule(config.schedule, writer);
  writer.table("run");
  writer.put("seed", config.seed());
  writer.put("evaluate_every", config.evaluate_every);
  writer.put("checkpoint_every", config.checkpoint_every);
  writer.put("checkpoint_interval", config.checkpoint_interval);
  writer.put("metrics_every", config.metrics_every);
  writer.put("snapshots", config.snapshots);
  write_fabric_tables(config.fabric, writer);
  return writer.text();
}

std::vector<std::string> key_lines(const RunConfig& config) {
  std::istringstream text(to_toml(config));
  std::vector<std::string> keys;
  std::string table;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      const std::size_t begin = line.find_first_not_of('[');
      table = line.substr(begin, line.find(']') - begin);
    } else {
      keys.push_back(fmt::format("{}.{}", table, line));
    }
  }
  return keys;
}

std::optional<std::string> difference(RunConfig before, RunConfig now) {
  // Where data lie and how many threads simulate change no result.
  for (RunConfig* config : {&before, &now}) {
    config->data_folder.clear();
    config->fabric.sim.pool_threads = 0;
  }
  const std::vector<std::string> old_keys = key_lines(before);
  const std::vector<std::string> new_keys = key_lines(now);
  const auto [old_key, new_key] = std::mismatch(old_keys.begin(), old_keys.end(), new_keys.begin(), new_keys.end());
  if (old_key == old_keys.end() && new_key == new_keys.end()) return std::nullopt;
  if (new_key == new_keys.end()) return fmt::format("it had {}, which is gone", *old_key);
  const std::size_t equals = new_key->find(" = ");
  const std::string name = new_key->substr(0, equals);
  const std::string value = new_key->substr(equals + 3);
  if (old_key == old_keys.end() || old_key->substr(0, old_key->find(" = ")) != name)
    return fmt::format("{} is {}, but was not there", name, value);
  return fmt::format("{} is {}, but was {}", name, value, old_key->substr(equals + 3));
}

std::optional<std::string> conflict(const RunConfig& before, const RunConfig& now) {
  RunConfig allowed = before;
  allowed.epochs = now.epochs;
  if (before.fabric.name != "sim" && now.fabric.name != "sim") {  // Real ranks may go on as threads or as processes.
    allowed.fabric.name = now.fabric.name;
    allowed.fabric.mpi = now.fabric.mpi;
  }
  // Whether another number of workers can go on is for the strategy and the checkpoint to say (other_workers.h).
  allowed.strategy = before.strategy_name();
  allowed.workers = now.workers;
  if (before.workers == 1 && now.workers == 1) {  // Many workers meet for a checkpoint, which is part of the course of the run.
    allowed.checkpoint_every = now.checkpoint_every;
    allowed.checkpoint_interval = now.checkpoint_interval;
  }
  return difference(allowed, now);
}

void parse_schedule(const std::string& text, std::string_view what, optim::ScheduleOptions& schedule) {
  constexpr std::string_view kValid = "constant, polynomial[:POWER], multi-step:EPOCH,EPOCH,...[:GAMMA] or cosine[:FINAL_LR]";
  const std::vector<std::string_view> parts = split(text, ':');
  const std::vector<std::string> names = optim::schedule_names();
  schedule.kind = std::string(parts[0]);
  const auto number = [&](std::string_view part) { return parse_number(part, what, text, kValid); };
  const std::size_t most = schedule.kind == "constant" ? 1 : schedule.kind == "multi-step" ? 3 : 2;
  if (std::find(names.begin(), names.end(), schedule.kind) == names.end() || parts.size() > most) {
    throw UserError(fmt::format("{} is '{}', but it is given as {}.{}", what, text, kValid, nearest_name_hint(schedule.kind, names)));
  }
  if (schedule.kind == "polynomial" && parts.size() > 1) schedule.power = number(parts[1]);
  if (schedule.kind == "cosine" && parts.size() > 1) schedule.final_lr = number(parts[1]);
  if (schedule.kind != "multi-step") return;
  if (parts.size() > 1) {
    schedule.milestones.clear();
    for (const std::string_view milestone : split(parts[1], ',')) schedule.milestones.push_back(number(milestone));
  }
  if (parts.size() > 2) schedule.gamma = number(parts[2]);
}

void parse_batch_warmup(const std::string& text, std::string_view what, optim::ScheduleOptions& schedule) {
  constexpr std::string_view kValid = "EPOCHS or EPOCHS:FROM, as in 5:8";
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() > 2) throw UserError(fmt::format("{} is '{}', but it is given as {}", what, text, kValid));
  schedule.batch_warmup_epochs = parse_number(parts[0], what, text, kValid);
  if (parts.size() == 1) return;
  const double from = parse_number(parts[1], what, text, kValid);
  if (!(from >= 1 && from <= 1e9) || from != static_cast<double>(static_cast<std::size_t>(from))) {
    throw UserError(
        fmt::format("{} is '{}', but a batch has a whole number of samples, at least 1; it is given as {}", what, text, kValid));
  }
  schedule.batch_warmup_from = static_cast<std::size_t>(from);
}

void parse_setting(const std::string& text, std::string_view what, RunConfig& config) {
  constexpr std::string_view kValid = "STRATEGY.OPTION=VALUE, as in easgd.rho=0.9";
  const std::size_t equals = text.find('=');
  const std::size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals || dot == 0 || equals == dot + 1 ||
      equals + 1 == text.size()) {
    throw UserError(fmt::format("{} is '{}', but it is given as {}", what, text, kValid));
  }
  const std::string strategy = text.substr(0, dot);
  if (strategy != config.strategy_name()) {
    throw UserError(fmt::format("{} is '{}', but the strategy of this run is {}: give --strategy {}, or options of {}.{}", what, text,
                                config.strategy_name(), strategy, config.strategy_name(),
                                nearest_name_hint(strategy, {config.strategy_name()})));
  }
  config.options[text.substr(dot + 1, equals - dot - 1)] = text.substr(equals + 1);
}

void parse_delay(const std::string& text, std::string_view what, RunConfig& config) {
  constexpr std::string_view kValid = "all:TIME, one:TIME or gauss:TIME:DEVIATION, as in all:30ms or gauss:30ms:5ms";
  const std::vector<std::string_view> parts = split(text, ':');
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("{} is '{}', but it is given as {}{}", what, text, kValid, why));
  };
  const std::size_t expected = parts[0] == "gauss" ? 3 : 2;
  if ((parts[0] != "all" && parts[0] != "one" && parts[0] != "gauss") || parts.size() != expected) {
    const std::string hint = expected == parts.size() ? nearest_name_hint(parts[0], {"all", "one", "gauss"}) : "";
    refuse(hint.empty() ? "" : fmt::format(".{}", hint));
  }
  const Duration time = parse_duration(parts[1], what);
  const auto add = [&](const std::string& ranks, const Distribution& distribution) {
    config.fabric.sim.delays.push_back({.point = "step", .ranks = fabric::RankSet::parse(ranks, what), .time = distribution});
  };
  // Only workers pass the point, so "all" are they; with one, it is not known yet how many there will be.
  const std::string all = config.workers == 1 ? "all" : fmt::format("0-{}", config.workers - 1);
  if (parts[0] == "gauss") return add(all, Distribution::gauss(time, parse_duration(parts[2], what)));
  add(all, Distribution::constant(time));
  if (parts[0] == "all") return;
  if (config.workers < 2) refuse("; one: slows worker 1 down, so there must be at least two");
  add("1", Distribution::constant(time));  // Delays add up: twice as long on worker 1.
}

void parse_speed(const std::string& text, std::string_view what, RunConfig& config) {
  constexpr std::string_view kValid = "RANKS:FACTOR, as in 1:0.5 or 2-3:0.25";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw UserError(fmt::format("{} is '{}', but it is given as {}", what, text, kValid));
  config.fabric.sim.speeds.push_back({.ranks = fabric::RankSet::parse(std::string_view(text).substr(0, colon), what),
                                      .factor = parse_number(std::string_view(text).substr(colon + 1), what, text, kValid)});
}

OnNan parse_on_nan(const std::string& text, std::string_view what) {
  if (text == "stop") return OnNan::stop;
  if (text == "skip") return OnNan::skip;
  throw UserError(fmt::format("{} is '{}', but it is stop or skip.{}", what, text, nearest_name_hint(text, {"stop", "skip"})));
}

}  // namespace starling::run
