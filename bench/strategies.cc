// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Training on two workers, side by side in one run: Starling's own one worker, sync, an asynchronous server, EA-wild and Hogwild!;
// sync and the asynchronous server on MPI, each rank a process; and PyTorch's DistributedDataParallel in two processes with gloo, and its
// Hogwild! in two processes with a model in shared memory. The columns take turns, round after round; medians are printed. A step is the
// gradient of a batch of 64 per worker, momentum, and the exchange.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/launch.h"
#include "bench/measure.h"
#include "bench/rival.h"
#include "starling/ledger/ledger.h"
#include "starling/run/replica_set.h"
#include "starling/run/trainer.h"

namespace starling::bench {
namespace {

constexpr int kRounds = 7;
constexpr double kSecondsPerRound = 1;
constexpr std::size_t kBatch = 64;

struct Column {
  const char* name;
  const char* strategy;
  int workers;
  int processes = 0;  // Of an MPI job; 0 for threads.
};
// "alone" are two workers that never exchange anything: what the two cores can do together.
constexpr Column kColumns[] = {{"1 worker", "sequential", 1}, {"alone", "local-sgd", 2},   {"sync", "sync", 2},
                               {"async", "async", 2},         {"ea-wild", "ea-wild", 2},   {"hogwild", "hogwild", 2},
                               {"sync mpi", "sync", 2, 2},    {"async mpi", "async", 2, 3}};

// The programs beside us, each with what it is to be compared with.
struct Other {
  const char* name;
  const char* script;
  const char* column;
  const char* own;
};
constexpr Other kOthers[] = {{"ddp", "strategies_ddp.py", "DDP", "sync mpi"},
                             {"torch-hogwild", "strategies_hogwild.py", "t. hogwild", "hogwild"}};

double samples_per_second(const Column& column, const std::string& model, const data::Dataset& dataset) {
  if (column.processes > 0) {
    const std::vector<std::string> lines =
        run_ranks(column.processes, "strategies_mpi", fmt::format("{} {} {}", model, column.strategy, dataset.train.count));
    return lines.empty() ? 0 : std::atof(lines[0].c_str());
  }
  run::RunConfig config;
  config.model = model;
  config.data = "random";
  config.strategy = column.strategy;
  config.workers = column.workers;
  if (config.strategy == "local-sgd") config.options["period"] = "1000000000";
  config.schedule.batch = kBatch;
  config.schedule.lr = 1e-4;
  config.epochs = 1;
  config.partition = "none";  // Every worker goes through all samples once.
  const run::ReplicaSet replicas(config, dataset);
  run::Trainer trainer(config, replicas.pointers(), dataset, {.viewers = replicas.viewers()});
  trainer.run();
  return static_cast<double>(trainer.result().state.samples) / trainer.result().state.seconds;
}

// What entering one update costs with two workers: produced, its stamp copied, applied.
double ledger_seconds_per_update() {
  ledger::Ledger ledger(3, 2, {2});
  ledger::Account& server = ledger.account(2);
  constexpr int kUpdates = 200'000;
  std::uint64_t version = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kUpdates; ++i) {
    params::Stamp stamp{.version = version, .contents = server.contents()};
    stamp.id = ledger.account(i % 2).produced();
    server.applied(stamp, version++, server.contents());
  }
  return seconds_since(begin) / kUpdates;
}

using Rivals = std::vector<std::unique_ptr<Rival>>;

std::map<std::string, double> medians_of(const std::string& model, const data::Dataset& dataset, Rivals& rivals) {
  std::map<std::string, std::vector<double>> results;
  for (int round = 0; round < kRounds; ++round) {
    for (const Column& column : kColumns) results[column.name].push_back(samples_per_second(column, model, dataset));
    for (const std::unique_ptr<Rival>& rival : rivals) {
      for (const auto& [name, value] : rival->measure(model, kBatch, kSecondsPerRound)) results[name].push_back(value);
    }
  }
  std::map<std::string, double> medians;
  for (const auto& [name, values] : results) medians[name] = median(values);
  return medians;
}

void run_model(const std::string& model, std::size_t samples, Rivals& rivals) {
  data::Dataset dataset;
  dataset.name = "random";
  dataset.train = random_images(samples);
  const std::map<std::string, double> speeds = medians_of(model, dataset, rivals);
  fmt::print("{:<22}", model);
  for (const Column& column : kColumns) fmt::print("{:>10.0f}", speeds.at(column.name));
  for (const Other& other : kOthers) {
    fmt::print("{:>12}", speeds.contains(other.name) ? fmt::format("{:.0f}", speeds.at(other.name)) : "-");
  }
  fmt::print("\n{:<22}{:>10}", "  times one worker", "");
  for (const Column& column : kColumns) {
    if (column.workers > 1) fmt::print("{:>10.2f}", speeds.at(column.name) / speeds.at("1 worker"));
  }
  fmt::print("\n");
  for (const Other& other : kOthers) {
    if (!speeds.contains(other.name)) continue;
    fmt::print("  {} is {:.2f} times {}\n", other.own, speeds.at(other.own) / speeds.at(other.name), other.column);
  }
  std::fflush(stdout);
}

void run(const std::string& folder) {
  Rivals rivals;
  for (const Other& other : kOthers) {
    rivals.push_back(std::make_unique<Rival>(std::vector<std::string>{"/usr/bin/python3", fmt::format("{}/{}", folder, other.script)}));
  }
  print_load("before");
  fmt::print("\ntwo workers, batch {} each\n{:<22}", kBatch, "samples per second");
  for (const Column& column : kColumns) fmt::print("{:>10}", column.name);
  for (const Other& other : kOthers) fmt::print("{:>12}", other.column);
  fmt::print("\n");
  run_model("lenet5", 1000 * kBatch, rivals);
  run_model("mlp:784-1000-1000-10", 200 * kBatch, rivals);
  const double ledger = ledger_seconds_per_update();
  fmt::print("\nthe ledger: {:.0f} ns per update\n\n", 1e9 * ledger);
  print_load("after");
}

}  // namespace
}  // namespace starling::bench

int main(int /*argc*/, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // A rival that has ended is an empty column.
  starling::bench::run(std::filesystem::path(argv[0]).parent_path().string());
  return 0;
}
