// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A column of the strategies table whose ranks are MPI processes: MODEL STRATEGY SAMPLES as arguments; rank 0 prints the samples per second
// of all workers together.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/rival.h"
#include "starling/fabric/mpi/mpi_fabric.h"
#include "starling/run/replica_set.h"
#include "starling/run/trainer.h"

int main(int argc, char** argv) {
  using namespace starling;
  if (argc != 4) return 2;
  const auto job = fabric::make_mpi_job();
  run::RunConfig config;
  config.model = argv[1];
  config.data = "random";
  config.strategy = argv[2];
  const strategy::Registry registry = strategy::Registry::built_in();
  config.workers = job->size() - (registry.find(config.strategy).needs_servers ? 1 : 0);
  config.schedule.batch = 64;
  config.schedule.lr = 1e-4;
  config.epochs = 1;
  config.partition = "none";  // Every worker goes through all samples once.
  config.fabric.name = "mpi";
  data::Dataset dataset;
  dataset.name = "random";
  dataset.train = bench::random_images(static_cast<std::size_t>(std::atoll(argv[3])));
  fabric::FabricOptions options;
  options.ranks = job->size();
  const auto fabric = job->make_fabric(options);
  const run::ReplicaSet replicas(config, dataset, registry, fabric->local_ranks());
  run::Trainer trainer(config, replicas.pointers(), dataset, {.viewers = replicas.viewers(), .fabric = fabric.get()});
  trainer.run();
  const run::RunState& state = trainer.result().state;
  if (job->rank() == 0) std::printf("%.9g\n", static_cast<double>(state.samples) / state.seconds);
}
