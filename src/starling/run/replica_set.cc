// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/replica_set.h"

#include <fmt/format.h>

#include <string>

#include "starling/base/error.h"
#include "starling/compute/network.h"

namespace starling::run {
namespace {

// The network whose layout this part of it has: widths of hidden layers are the rows of all matrices but the last.
std::string part_text(const RunConfig& config, const compute::Problem& problem, const params::Layout& part) {
  if (!compute::is_network(config.model)) {
    throw UserError(
        fmt::format("strategy {} trains parts of a model, which only the native engine can make, but the model is '{}'; try "
                    "mlp:784-1000-1000-10",
                    config.strategy_name(), config.model));
  }
  std::vector<int> widths;
  for (const params::Slice& slice : part.slices()) {
    if (slice.shape.size() == 2) widths.push_back(static_cast<int>(slice.shape[0]));
  }
  STARLING_CHECK(!widths.empty(), fmt::format("a part of '{}' has no layers", config.model));
  widths.pop_back();
  return compute::narrow(compute::parse_network(config.model, problem), widths);
}

}  // namespace

ReplicaSet::ReplicaSet(const RunConfig& config, const data::Dataset& dataset, const strategy::Registry& registry) {
  const strategy::Description& description = registry.find(config.strategy_name());
  const compute::Problem problem = compute::Problem::of(dataset.train);
  for (int worker = 0; worker < config.workers; ++worker) {
    const auto rank = static_cast<std::uint32_t>(worker);
    Replicas& whole = description.trains_parts ? viewers_ : replicas_;
    whole.push_back(compute::make_replica(config.model, problem, config.seed(), rank));
    if (!description.trains_parts) continue;
    const params::Layout& layout = viewers_.back()->layout();
    const params::Layout part = description.part_layout(config.settings(description), config.roles(description), layout, worker);
    const std::string model = part == layout ? config.model : part_text(config, problem, part);
    replicas_.push_back(compute::make_replica(model, problem, config.seed(), rank));
  }
}

std::vector<compute::Replica*> ReplicaSet::pointers_to(const Replicas& replicas) {
  std::vector<compute::Replica*> result;
  result.reserve(replicas.size());
  for (const auto& replica : replicas) result.push_back(replica.get());
  return result;
}

}  // namespace starling::run
