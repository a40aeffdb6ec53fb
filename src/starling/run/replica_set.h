// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One replica per worker, as a run's configuration names them, for a Trainer.
//
//   const ReplicaSet replicas(config, dataset);
//   Trainer trainer(config, replicas.pointers(), dataset, {});
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "starling/compute/model.h"
#include "starling/data/dataset.h"
#include "starling/run/run_config.h"

namespace starling::run {

class ReplicaSet {
 public:
  // Throws UserError as compute::make_replica does.
  ReplicaSet(const RunConfig& config, const data::Dataset& dataset) {
    for (int worker = 0; worker < config.workers; ++worker) {
      replicas_.push_back(
          compute::make_replica(config.model, compute::Problem::of(dataset.train), config.seed(), static_cast<std::uint32_t>(worker)));
    }
  }

  compute::Replica& operator[](std::size_t worker) const { return *replicas_[worker]; }

  // Valid as long as the set is.
  std::vector<compute::Replica*> pointers() const {
    std::vector<compute::Replica*> result;
    result.reserve(replicas_.size());
    for (const auto& replica : replicas_) result.push_back(replica.get());
    return result;
  }

 private:
  std::vector<std::unique_ptr<compute::Replica>> replicas_;
};

}  // namespace starling::run
