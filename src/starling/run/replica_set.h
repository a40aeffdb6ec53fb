// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One replica per worker, as a run's configuration names them, for a Trainer. Where the strategy trains parts of the model, each is the
// worker's part, and there is a second one of the whole model beside it.
//
//   const ReplicaSet replicas(config, dataset);
//   Trainer trainer(config, replicas.pointers(), dataset, {.viewers = replicas.viewers()});
#pragma once

#include <memory>
#include <vector>

#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/fabric/message.h"
#include "starling/run/run_config.h"
#include "starling/strategy/registry.h"

namespace starling::run {

class ReplicaSet {
 public:
  // Throws UserError as compute::make_replica does, and where the strategy cannot cut the model into parts.
  // `here` are the ranks that live in this process (fabric::Fabric::local_ranks), or none for all. Only their workers get replicas; if none
  // of them is a worker, there is one of worker 0, of the whole model.
  ReplicaSet(const RunConfig& config, const data::Dataset& dataset, const strategy::Registry& registry = strategy::Registry::built_in(),
             const std::vector<fabric::Rank>& here = {});

  compute::Replica& operator[](std::size_t worker) const { return *replicas_[worker]; }
  // Of the whole model.
  const params::Layout& layout() const;

  // One for each worker, nullptr where it lives elsewhere. Valid as long as the set is. No viewers where replicas are no parts.
  std::vector<compute::Replica*> pointers() const { return pointers_to(replicas_); }
  std::vector<compute::Replica*> viewers() const { return pointers_to(viewers_); }

 private:
  using Replicas = std::vector<std::unique_ptr<compute::Replica>>;
  static std::vector<compute::Replica*> pointers_to(const Replicas& replicas);

  Replicas replicas_;
  Replicas viewers_;
};

}  // namespace starling::run
