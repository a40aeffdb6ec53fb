// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs of the trainer on the small problem, with any strategy and number of workers.
//
//   RunConfig config = small_config("async", 3, "sim");
//   Trained trained = train_small(config);
//   trained.result.balance.balanced;
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "starling/run/replica_set.h"
#include "starling/run/trainer.h"
#include "unit/run/small_problem.h"

namespace starling::run {

struct Trained {
  TrainResult result{};
  std::vector<float> model{};
};

// A native model of the same problem, for strategies that train parts of one, with units for eight workers.
inline constexpr const char* kSmallPerceptron = "dense 9, batchnorm batch, relu, dense 8, tanh, dense 3";

// Two epochs over 200 samples, in batches of 16. Nothing happens by the wall clock.
inline RunConfig small_config(const std::string& strategy, int workers, const std::string& fabric) {
  RunConfig config;
  config.model = strategy == "ist" ? kSmallPerceptron : "small";
  config.data = "small";
  config.strategy = strategy;
  config.workers = workers;
  config.fabric.name = fabric;
  config.epochs = 2;
  config.schedule.batch = 16;
  config.schedule.lr = 0.05;
  config.optimiser = {.name = "momentum", .momentum = 0.5};
  config.checkpoint_interval = Duration::zero();
  config.metrics_every = 3;
  return config;
}

// In the simulator: ranks of different speeds, compute times that vary, links with jitter.
inline RunConfig uneven(RunConfig config) {
  using namespace std::chrono_literals;
  fabric::SimOptions& sim = config.fabric.sim;
  sim.compute.time_per_unit = Distribution::lognormal(1ms, 300us);
  sim.network.link.jitter = Distribution::exponential(500us);
  for (int worker = 0; worker < config.workers; ++worker) {
    constexpr int kSpeeds = 4;
    sim.speeds.push_back({.ranks = fabric::RankSet{worker}, .factor = 0.5 + 0.25 * ((worker * 3 + 1) % kSpeeds)});
  }
  return config;
}

inline Trained train_small(const RunConfig& config, TrainerOptions options = {}, const Checkpoint* checkpoint = nullptr) {
  const data::Dataset dataset = small_dataset();
  const auto finish = [&](Trainer& trainer) -> Trained {
    if (checkpoint != nullptr) trainer.restore(*checkpoint);
    trainer.run();
    return {.result = trainer.result(), .model = {trainer.model().begin(), trainer.model().end()}};
  };
  if (config.model != "small") {
    const ReplicaSet replicas(config, dataset);
    options.viewers = replicas.viewers();
    Trainer trainer(config, replicas.pointers(), dataset, std::move(options));
    return finish(trainer);
  }
  std::vector<std::unique_ptr<SmallReplica>> replicas;
  std::vector<compute::Replica*> pointers;
  for (int worker = 0; worker < config.workers; ++worker) {
    replicas.push_back(std::make_unique<SmallReplica>());
    pointers.push_back(replicas.back().get());
  }
  Trainer trainer(config, pointers, dataset, std::move(options));
  return finish(trainer);
}

}  // namespace starling::run
