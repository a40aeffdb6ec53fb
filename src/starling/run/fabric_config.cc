// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/fabric_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/base/units.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"
#include "starling/run/toml_read.h"
#include "starling/run/toml_write.h"

namespace starling::run {
namespace {

using fabric::Interval;
using fabric::MessageFault;
using fabric::SimOptions;

void read_interval(TomlTable& table, Interval& interval) {
  read(table, "from", interval.from);
  read(table, "until", interval.until);
}

// A key with two values, of which the second is true.
void read_choice(TomlTable& table, const char* key, const std::array<const char*, 2>& values, bool& result) {
  const auto text = table.string(key);
  if (!text) return;
  table.locate(key, [&] {
    if (*text != values[0] && *text != values[1]) {
      throw UserError(fmt::format("mpi.{} is '{}', but it is {} or {}", key, *text, values[0], values[1]));
    }
    result = *text == values[1];
  });
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
    read(table, "offered_only", fault.offered_only);
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

// What is written stands in the order in which docs/simulator.md describes it.

void write_compute(const SimOptions& options, TomlWriter& writer) {
  writer.table("sim.compute");
  writer.put("time_per_unit", options.compute.time_per_unit.text());
}

// An infinite bandwidth is the default, and has no other form than to be left out.
void write_bandwidth(double bytes_per_second, TomlWriter& writer) {
  if (!std::isinf(bytes_per_second)) writer.put("bandwidth", fmt::format("{}B/s", bytes_per_second));
}

void write_network(const fabric::NetworkModel& network, TomlWriter& writer) {
  writer.table("sim.network");
  writer.put("latency", network.link.latency);
  write_bandwidth(network.link.bytes_per_second, writer);
  writer.put("jitter", network.link.jitter.text());
  writer.put("serialise_sending", network.serialise_sending);
  writer.put("serialise_receiving", network.serialise_receiving);
  for (const fabric::LinkRule& rule : network.rules) {
    writer.element("sim.link");
    writer.put("from", rule.from.text());
    writer.put("to", rule.to.text());
    if (rule.latency) writer.put("latency", *rule.latency);
    if (rule.bytes_per_second) write_bandwidth(*rule.bytes_per_second, writer);
    if (rule.jitter) writer.put("jitter", rule.jitter->text());
  }
}

void write_interval(const Interval& interval, TomlWriter& writer) {
  writer.put("from", interval.from);
  if (interval.until != kEndOfTime) writer.put("until", interval.until);
}

void write_message_faults(const std::vector<MessageFault>& faults, const std::string& name, TomlWriter& writer) {
  for (const MessageFault& fault : faults) {
    writer.element(name);
    writer.put("from", fault.from.text());
    writer.put("to", fault.to.text());
    writer.put("probability", fault.probability);
    if (fault.offered_only) writer.put("offered_only", fault.offered_only);
    if (name == "sim.spike") writer.put("delay", fault.delay.text());
  }
}

void write_faults(const fabric::FaultModel& faults, TomlWriter& writer) {
  for (const fabric::CrashRule& crash : faults.crashes) {
    writer.element("sim.crash");
    writer.put("rank", crash.rank);
    if (crash.time) writer.put("at", *crash.time);
    if (!crash.point.empty()) writer.put("point", crash.point);
    writer.put("count", crash.count);
    if (crash.restart_after) writer.put("restart_after", *crash.restart_after);
  }
  write_message_faults(faults.drops, "sim.drop", writer);
  write_message_faults(faults.duplicates, "sim.duplicate", writer);
  write_message_faults(faults.spikes, "sim.spike", writer);
  for (const fabric::PartitionRule& rule : faults.partitions) {
    writer.element("sim.partition");
    writer.put("ranks", rule.ranks.text());
    write_interval(rule.interval, writer);
    writer.put("drop", rule.drop);
  }
  for (const fabric::SlowRule& rule : faults.slow) {
    writer.element("sim.slow");
    writer.put("ranks", rule.ranks.text());
    writer.put("times", rule.times);
    write_interval(rule.interval, writer);
  }
}

}  // namespace

FabricConfig read_fabric_tables(TomlTable& file) {
  FabricConfig config;
  if (auto table = file.table("fabric")) {
    read(*table, "name", config.name);
    read(*table, "ranks", config.sim.ranks);
    read(*table, "seed", config.sim.seed);
    read(*table, "timeout", config.sim.timeout);
    read(*table, "queue_messages", config.sim.queue_messages);
    read(*table, "queue_bytes", config.sim.queue_bytes);
    table->reject_unknown_keys();
  }
  std::vector<TomlTable> delays;
  if (!file.strings("delay")) delays = file.tables("delay");
  for (TomlTable& table : delays) {
    fabric::DelayRule& rule = config.sim.delays.emplace_back();
    read(table, "point", rule.point);
    read(table, "ranks", rule.ranks);
    read(table, "time", rule.time);
    table.reject_unknown_keys();
    table.require("point");
    table.require("time");
  }
  for (TomlTable& table : file.tables("speed")) {
    fabric::SpeedRule& rule = config.sim.speeds.emplace_back();
    read(table, "ranks", rule.ranks);
    read(table, "factor", rule.factor);
    table.reject_unknown_keys();
    table.require("factor");
  }
  if (auto mpi = file.table("mpi")) {
    read_choice(*mpi, "all_reduce", {"ordered", "library"}, config.mpi.library_all_reduce);
    read_choice(*mpi, "windows", {"automatic", "one-sided"}, config.mpi.one_sided_windows);
    mpi->reject_unknown_keys();
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
  return config;
}

void write_fabric_tables(const FabricConfig& config, TomlWriter& writer) {
  const SimOptions& options = config.sim;
  writer.table("fabric");
  writer.put("name", config.name);
  writer.put("ranks", options.ranks);
  writer.put("seed", options.seed);
  writer.put("timeout", options.timeout);
  writer.put("queue_messages", options.queue_messages);
  writer.put("queue_bytes", options.queue_bytes);
  for (const fabric::DelayRule& rule : options.delays) {
    writer.element("delay");
    writer.put("point", rule.point);
    writer.put("ranks", rule.ranks.text());
    writer.put("time", rule.time.text());
  }
  for (const fabric::SpeedRule& rule : options.speeds) {
    writer.element("speed");
    writer.put("ranks", rule.ranks.text());
    writer.put("factor", rule.factor);
  }
  if (config.name == "mpi") {
    writer.table("mpi");
    writer.put("all_reduce", config.mpi.library_all_reduce ? "library" : "ordered");
    writer.put("windows", config.mpi.one_sided_windows ? "one-sided" : "automatic");
  }
  if (config.name != "sim") return;
  writer.table("sim");
  writer.put("pool_threads", options.pool_threads);
  writer.put("stack_bytes", options.stack_bytes);
  writer.put("poll_cost", options.poll_cost);
  writer.put("crash_detection", options.faults.detection);
  write_compute(options, writer);
  write_network(options.network, writer);
  write_faults(options.faults, writer);
}

FabricConfig parse_fabric_config(const std::string& text, const std::string& origin) {
  TomlTable file = TomlTable::parse(text, origin);
  FabricConfig config = read_fabric_tables(file);
  file.reject_unknown_keys();
  return config;
}

FabricConfig read_fabric_config(const std::string& path) { return parse_fabric_config(read_file(path, "configuration file"), path); }

void validate(const FabricConfig& config) {
  if (config.name != "mpi") {
    (void)make_fabric(config);
    return;
  }
  config.sim.validate();
  for (fabric::Rank rank = 0; rank < config.sim.ranks; ++rank) fabric::check_not_faster(config.sim, rank, "processes");
}

std::unique_ptr<fabric::Fabric> make_fabric(const FabricConfig& config) {
  if (config.name == "mpi") {
    throw UserError(
        "the fabric 'mpi' joins processes that were started together: start them with mpirun or srun, as mpirun -n 4 starling train");
  }
  if (config.name == "threads") return std::make_unique<fabric::ThreadsFabric>(config.sim);
  if (config.name == "sim") return std::make_unique<fabric::SimFabric>(config.sim);
  throw UserError(fmt::format("the fabric is '{}', but it is one of threads, sim, mpi.{}", config.name,
                              nearest_name_hint(config.name, {"threads", "sim", "mpi"})));
}

}  // namespace starling::run
