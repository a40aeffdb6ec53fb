// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Training on two workers, side by side in one run: Starling's own one worker, sync, an asynchronous server and EA-wild, and PyTorch's
// DistributedDataParallel in two processes with gloo. The columns take turns, round after round; medians are printed. A step is the
// gradient of a batch of 64 per worker, momentum, and the exchange.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

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
};
// "alone" are two workers that never exchange anything: what the two cores can do together.
constexpr Column kColumns[] = {
    {"1 worker", "sequential", 1}, {"alone", "local-sgd", 2}, {"sync", "sync", 2}, {"async", "async", 2}, {"ea-wild", "ea-wild", 2}};

double samples_per_second(const Column& column, const std::string& model, const data::Dataset& dataset) {
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

void run_model(const std::string& model, std::size_t samples, Rival& ddp) {
  data::Dataset dataset;
  dataset.name = "random";
  dataset.train = random_images(samples);
  std::map<std::string, std::vector<double>> results;
  for (int round = 0; round < kRounds; ++round) {
    for (const Column& column : kColumns) results[column.name].push_back(samples_per_second(column, model, dataset));
    for (const auto& [name, value] : ddp.measure(model, kBatch, kSecondsPerRound)) results[name].push_back(value);
  }
  const double own = median(results["1 worker"]);
  const double other = results.contains("ddp") ? median(results["ddp"]) : 0;
  fmt::print("{:<22}", model);
  for (const Column& column : kColumns) fmt::print("{:>10.0f}", median(results[column.name]));
  fmt::print("{:>10}", other > 0 ? fmt::format("{:.0f}", other) : "-");
  for (const Column& column : kColumns) {
    if (column.workers > 1) fmt::print("{:>10.2f}", median(results[column.name]) / own);
  }
  fmt::print("{:>12}\n", other > 0 ? fmt::format("{:.2f}", median(results["sync"]) / other) : "-");
  std::fflush(stdout);
}

void run(const std::string& folder) {
  Rival ddp({"/usr/bin/python3", folder + "/strategies_ddp.py"});
  print_load("before");
  fmt::print("\ntwo workers, batch {} each{:>73}\n", kBatch, "times the own one worker");
  fmt::print("{:<22}", "samples per second");
  for (const Column& column : kColumns) fmt::print("{:>10}", column.name);
  fmt::print("{:>10}", "DDP");
  for (const Column& column : kColumns) {
    if (column.workers > 1) fmt::print("{:>10}", column.name);
  }
  fmt::print("{:>12}\n", "sync / DDP");
  run_model("lenet5", 300 * kBatch, ddp);
  run_model("mlp:784-1000-1000-10", 60 * kBatch, ddp);
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
