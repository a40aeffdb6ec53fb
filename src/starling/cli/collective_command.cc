// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/units.h"
#include "starling/cli/commands.h"
#include "starling/lab/collective_trial.h"
#include "starling/run/fabric_config.h"

namespace starling::cli {
namespace {

struct Flags {
  std::string operation = "all-reduce";
  std::string config;
  std::string fabric;
  int ranks = 0;
  std::size_t floats = 61706;
  std::vector<std::string> algorithms;
  int subgroup = 8;
  int repeat = 1;
  std::optional<std::uint64_t> seed;
  std::string timeout;
  std::string latency;
  std::string bandwidth;
  std::string jitter;
  std::string trace;
  bool json = false;
};

run::FabricConfig configure(const Flags& flags) {
  run::FabricConfig config;
  config.name = "sim";
  config.sim.ranks = 8;
  if (!flags.config.empty()) config = run::read_fabric_config(flags.config);
  if (!flags.fabric.empty()) config.name = flags.fabric;
  if (flags.ranks != 0) config.sim.ranks = flags.ranks;
  if (flags.seed) config.sim.seed = *flags.seed;
  if (!flags.timeout.empty()) config.sim.timeout = parse_duration(flags.timeout, "--timeout");
  if (!flags.latency.empty()) config.sim.network.link.latency = parse_duration(flags.latency, "--latency");
  if (!flags.bandwidth.empty()) config.sim.network.link.bytes_per_second = parse_bandwidth(flags.bandwidth, "--bandwidth");
  if (!flags.jitter.empty()) config.sim.network.link.jitter = Distribution::parse(flags.jitter, "--jitter");
  return config;
}

void run_collective(const Flags& flags) {
  run::FabricConfig config = configure(flags);
  std::vector<collective::Algorithm> algorithms;
  for (const std::string& name : flags.algorithms) algorithms.push_back(collective::parse_algorithm(name));
  if (algorithms.empty()) algorithms = lab::algorithms_of(flags.operation);
  if (!flags.trace.empty() && (config.name != "sim" || algorithms.size() != 1)) {
    throw UserError("--trace writes one run of the simulator: give --fabric sim and one --algorithm with it");
  }
  // What is wrong with the options is said before any file is touched.
  (void)run::make_fabric(config);
  for (const collective::Algorithm algorithm : algorithms) lab::check_algorithm(flags.operation, algorithm);
  std::ofstream trace;
  if (!flags.trace.empty()) {
    trace.open(flags.trace);
    if (!trace) throw UserError(fmt::format("cannot write the trace to '{}': {}", flags.trace, std::strerror(errno)));
    config.sim.trace = &trace;
  }

  const double size_bytes = static_cast<double>(flags.floats) * sizeof(float);
  fmt::print("{} of {} floats ({}) over {} ranks, fabric {}{}\n\n", flags.operation, flags.floats, format_bytes(size_bytes),
             config.sim.ranks, config.name, config.name == "sim" ? ", virtual time" : "");
  fmt::print("{:<13} {:>12} {:>20} {:>18}\n", "algorithm", "time", "messages sent¹", "bytes sent¹");
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const collective::Algorithm algorithm : algorithms) {
    const lab::CollectiveTrial trial{flags.operation, algorithm, flags.subgroup, flags.floats, flags.repeat};
    const std::unique_ptr<fabric::Fabric> fabric = run::make_fabric(config);
    const lab::CollectiveResult result = lab::run_collective_trial(*fabric, trial);
    fmt::print("{:<13} {:>12} {:>19.6g} {:>17}\n", collective::to_string(algorithm), format_duration(result.time), result.messages,
               format_bytes(result.bytes));
    results.push_back({{"algorithm", collective::to_string(algorithm)},
                       {"seconds", to_seconds(result.time)},
                       {"messages_sent", result.messages},
                       {"bytes_sent", result.bytes}});
  }
  fmt::print("\n¹ by the rank that sends most\n");
  if (trace.is_open()) {
    trace.close();
    if (!trace) throw UserError(fmt::format("cannot write the trace to '{}': {}", flags.trace, std::strerror(errno)));
    fmt::print("trace written to {}: open it in ui.perfetto.dev or chrome://tracing\n", flags.trace);
  }
  if (flags.json) {
    const nlohmann::ordered_json summary{{"operation", flags.operation}, {"fabric", config.name},   {"ranks", config.sim.ranks},
                                         {"floats", flags.floats},       {"seed", config.sim.seed}, {"results", results}};
    fmt::print("{}\n", summary.dump());
  }
}

}  // namespace

void add_collective_command(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("collective", "What a collective costs: time, messages and bytes, on threads or on a simulated network");
  command->add_option("operation", flags->operation, "all-reduce, reduce-scatter, all-gather, broadcast or barrier")->capture_default_str();
  command->add_option("--ranks", flags->ranks, "Number of ranks [8]")->check(CLI::PositiveNumber);
  command->add_option("--floats", flags->floats, "Length of the vector; 61706 is a LeNet-5")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e12));
  command->add_option("--algorithm", flags->algorithms, "automatic, flat, direct, ring, hierarchical; several with commas [all of them]")
      ->delimiter(',');
  command->add_option("--subgroup", flags->subgroup, "Members of a subgroup, for hierarchical")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repeat", flags->repeat, "Repetitions to average over")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--fabric", flags->fabric, "threads (real time) or sim (virtual time) [sim]");
  command->add_option("--config", flags->config, "TOML file with [fabric] and [sim] tables; flags go on top");
  command->add_option("--seed", flags->seed, "Seed of all random streams [1]")->check(CLI::Range(0.0, 9e18));
  command->add_option("--timeout", flags->timeout, "How long a rank waits before it gives up, as 30s [30s]");
  command->add_option("--latency", flags->latency, "sim: of every link, as 50us [10us]");
  command->add_option("--bandwidth", flags->bandwidth, "sim: of every link, as 10Gbit/s or 125MB/s [no limit]");
  command->add_option("--jitter", flags->jitter, "sim: added latency, as 20us, gauss:20us:5us or exponential:20us [none]");
  command->add_option("--trace", flags->trace, "sim: write all events as Chrome/Perfetto JSON to this file");
  command->add_flag("--json", flags->json, "Print one JSON object as the last line");
  command->footer(
      "Example: which all-reduce suits 64 machines on 10 Gbit Ethernet, for a model of a million weights?\n"
      "  starling collective --ranks 64 --floats 1000000 --latency 50us --bandwidth 10Gbit/s");
  command->callback([flags] { run_collective(*flags); });
}

}  // namespace starling::cli
