// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/fabric_config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "starling/base/error.h"
#include "starling/base/units.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"
#include "starling/run/toml_table.h"

namespace starling::run {
namespace {

using fabric::Interval;
using fabric::MessageFault;
using fabric::RankSet;
using fabric::SimOptions;

// Each reads one key into a target, which keeps its value if the key is absent.

void read(TomlTable& table, std::string_view key, Duration& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = parse_duration(*text, key); });
}

void read(TomlTable& table, std::string_view key, std::optional<Duration>& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = parse_duration(*text, key); });
}

void read(TomlTable& table, std::string_view key, Distribution& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = Distribution::parse(*text, key); });
}

void read(TomlTable& table, std::string_view key, RankSet& target) {
  if (const auto text = table.text(key)) table.locate(key, [&] { target = RankSet::parse(*text, key); });
}

void read(TomlTable& table, std::string_view key, double& target) {
  if (const auto value = table.number(key)) target = *value;
}

void read(TomlTable& table, std::string_view key, bool& target) {
  if (const auto value = table.boolean(key)) target = *value;
}

void read(TomlTable& table, std::string_view key, std::string& target) {
  if (auto value = table.string(key)) target = *std::move(value);
}

template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) void read(TomlTable& table, std::string_view key, Integer& target) {
  const std::optional<std::int64_t> value = table.integer(key);
  if (!value) return;
  table.locate(key, [&] {
    if (!std::in_range<Integer>(*value)) {
      throw UserError(fmt::format("{} is {}, but it must be between {} and {}", key, *value, std::numeric_limits<Integer>::min(),
                                  std::numeric_limits<Integer>::max()));
    }
    target = static_cast<Integer>(*value);
  });
}

void read_interval(TomlTable& table, Interval& interval) {
  read(table, "from", interval.from);
  read(table, "until", interval.until);
}

void read(TomlTable& table, std::string_view key, std::optional<Distribution>& target) {
  if (const auto text = table.string(key)) table.locate(key, [&] { target = Distribution::parse(*text, key); });
}

// For a LinkModel or a LinkRule.
template <class Link>
void read_link(TomlTable& table, Link& link) {
  read(table, "latency", link.latency);
  read(table, "jitter", link.jitter);
  if (const auto text = table.string("bandwidth")) {
    table.locate("bandwidth", [&] { link.bytes_per_second = parse_bandwidth(*text, "bandwidth"); });
  }
}

void read_message_faults(TomlTable& sim, std::string_view key, std::vector<MessageFault>& faults) {
  for (TomlTable& table : sim.tables(key)) {
    MessageFault& fault = faults.emplace_back();
    read(table, "from", fault.from);
    read(table, "to", fault.to);
    read(table, "probability", fault.probability);
    if (key == "spike") read(table, "delay", fault.delay);
    table.reject_unknown_keys();
    table.require("probability");
    if (key == "spike") table.require("delay");
  }
}

void read_crash(TomlTable& table, std::vector<fabric::CrashRule>& crashes) {
  fabric::CrashRule& crash = crashes.emplace_back();
  read(table, "rank", crash.rank);
  read(table, "at", crash.time);
  read(table, "point", crash.point);
  read(table, "count", crash.count);
  read(table, "restart_after", crash.restart_after);
  table.reject_unknown_keys();
  table.require("rank");
}

void read_network(TomlTable& sim, SimOptions& options) {
  if (auto network = sim.table("network")) {
    read_link(*network, options.network.link);
    read(*network, "serialise_sending", options.network.serialise_sending);
    read(*network, "serialise_receiving", options.network.serialise_receiving);
    network->reject_unknown_keys();
  }
  for (TomlTable& table : sim.tables("link")) {
    fabric::LinkRule& rule = options.network.rules.emplace_back();
    read(table, "from", rule.from);
    read(table, "to", rule.to);
    read_link(table, rule);
    table.reject_unknown_keys();
  }
}

void read_compute(TomlTable& sim, SimOptions& options) {
  if (auto compute = sim.table("compute")) {
    read(*compute, "time_per_unit", options.compute.time_per_unit);
    compute->reject_unknown_keys();
  }
  for (TomlTable& table : sim.tables("speed")) {
    fabric::SpeedRule& rule = options.compute.speeds.emplace_back();
    read(table, "ranks", rule.ranks);
    read(table, "factor", rule.factor);
    table.reject_unknown_keys();
    table.require("factor");
  }
}

void read_faults(TomlTable& sim, SimOptions& options) {
  for (TomlTable& table : sim.tables("crash")) read_crash(table, options.faults.crashes);
  read(sim, "crash_detection", options.faults.detection);
  read_message_faults(sim, "drop", options.faults.drops);
  read_message_faults(sim, "duplicate", options.faults.duplicates);
  read_message_faults(sim, "spike", options.faults.spikes);
  for (TomlTable& table : sim.tables("partition")) {
    fabric::PartitionRule& rule = options.faults.partitions.emplace_back();
    read(table, "ranks", rule.ranks);
    read_interval(table, rule.interval);
    read(table, "drop", rule.drop);
    table.reject_unknown_keys();
    table.require("ranks");
  }
  for (TomlTable& table : sim.tables("slow")) {
    fabric::SlowRule& rule = options.faults.slow.emplace_back();
    read(table, "ranks", rule.ranks);
    read(table, "times", rule.times);
    read_interval(table, rule.interval);
    table.reject_unknown_keys();
    table.require("times");
  }
}

}  // namespace

FabricConfig parse_fabric_config(const std::string& text, const std::string& origin) {
  FabricConfig config;
  TomlTable file = TomlTable::parse(text, origin);
  if (auto table = file.table("fabric")) {
    read(*table, "name", config.name);
    read(*table, "ranks", config.sim.ranks);
    read(*table, "seed", config.sim.seed);
    read(*table, "timeout", config.sim.timeout);
    read(*table, "queue_messages", config.sim.queue_messages);
    read(*table, "queue_bytes", config.sim.queue_bytes);
    table->reject_unknown_keys();
  }
  for (TomlTable& table : file.tables("delay")) {
    fabric::DelayRule& rule = config.sim.delays.emplace_back();
    read(table, "point", rule.point);
    read(table, "ranks", rule.ranks);
    read(table, "time", rule.time);
    table.reject_unknown_keys();
    table.require("point");
    table.require("time");
  }
  if (auto sim = file.table("sim")) {
    read(*sim, "pool_threads", config.sim.pool_threads);
    read(*sim, "stack_bytes", config.sim.stack_bytes);
    read(*sim, "poll_cost", config.sim.poll_cost);
    read_compute(*sim, config.sim);
    read_network(*sim, config.sim);
    read_faults(*sim, config.sim);
    sim->reject_unknown_keys();
  }
  file.reject_unknown_keys();
  return config;
}

FabricConfig read_fabric_config(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw UserError(fmt::format("cannot read the configuration file '{}': {}", path, std::strerror(errno)));
  return parse_fabric_config(text.str(), path);
}

std::unique_ptr<fabric::Fabric> make_fabric(const FabricConfig& config) {
  if (config.name == "threads") return std::make_unique<fabric::ThreadsFabric>(config.sim);
  if (config.name == "sim") return std::make_unique<fabric::SimFabric>(config.sim);
  throw UserError(
      fmt::format("the fabric is '{}', but it is one of threads, sim.{}", config.name, nearest_name_hint(config.name, {"threads", "sim"})));
}

}  // namespace starling::run
