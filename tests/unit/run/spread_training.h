// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs of the trainer on the small problem whose ranks live, so to speak, in processes of their own (spread_fabric.h).
//
//   std::vector<Trained> trained = train_spread(small_config("async", 3, "threads"));
//   trained[0].result.balance.balanced;
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/run/small_training.h"
#include "unit/run/spread_fabric.h"

namespace starling::run {

// What differs from rank to rank.
struct SpreadPlan {
  std::function<void(fabric::Rank, TrainerOptions&)> options{};
  std::function<std::unique_ptr<SmallReplica>(fabric::Rank)> make_replica{};
  const Checkpoint* checkpoint = nullptr;
  std::function<void(fabric::Rank, RunConfig&, data::Dataset&)> change{};  // What its process has read.
};

inline strategy::Roles roles_of(const RunConfig& config) {
  const strategy::Registry registry = strategy::Registry::built_in();
  return config.roles(registry.find(config.strategy_name()));
}

// One process: a trainer with the replica that its rank needs, and no more.
inline Trained train_one_rank(const RunConfig& config, const data::Dataset& dataset, fabric::Fabric& fabric, const SpreadPlan& plan) {
  const fabric::Rank rank = fabric.local_ranks()[0];
  TrainerOptions options{.fabric = &fabric};
  if (plan.options) plan.options(rank, options);
  const auto finish = [&](Trainer& trainer) -> Trained {
    if (plan.checkpoint != nullptr) trainer.restore(*plan.checkpoint);
    trainer.run();
    return {.result = trainer.result(), .model = {trainer.model().begin(), trainer.model().end()}};
  };
  if (config.model != "small") {
    const ReplicaSet replicas(config, dataset, strategy::Registry::built_in(), fabric.local_ranks());
    options.viewers = replicas.viewers();
    Trainer trainer(config, replicas.pointers(), dataset, std::move(options));
    return finish(trainer);
  }
  const std::unique_ptr<SmallReplica> replica = plan.make_replica ? plan.make_replica(rank) : std::make_unique<SmallReplica>();
  std::vector<compute::Replica*> pointers(static_cast<std::size_t>(config.workers));
  pointers[rank < config.workers ? static_cast<std::size_t>(rank) : 0] = replica.get();
  Trainer trainer(config, pointers, dataset, std::move(options));
  return finish(trainer);
}

struct SpreadTrained {
  std::vector<Trained> ranks{};
  std::vector<std::string> errors{};  // What each threw; "" where it threw nothing.

  const TrainResult& result() const { return ranks[0].result; }
};

inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

inline SpreadTrained train_spread(const RunConfig& config, const SpreadPlan& plan = {}) {
  const data::Dataset dataset = small_dataset();
  fabric::FabricOptions options = config.fabric.sim;
  options.ranks = roles_of(config).ranks();
  fabric::SpreadRanks ranks(options);
  SpreadTrained trained;
  trained.ranks.resize(static_cast<std::size_t>(options.ranks));
  ranks.each([&](fabric::Fabric& fabric) {
    const fabric::Rank rank = fabric.local_ranks()[0];
    RunConfig own_config = config;
    data::Dataset own_dataset = dataset;
    if (plan.change) plan.change(rank, own_config, own_dataset);
    trained.ranks[static_cast<std::size_t>(rank)] = train_one_rank(own_config, own_dataset, fabric, plan);
  });
  for (const std::exception_ptr& error : ranks.thrown) trained.errors.push_back(text_of(error));
  return trained;
}

}  // namespace starling::run
