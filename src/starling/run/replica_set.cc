// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/replica_set.h"

#include <fmt/format.h>

#include <algorithm>
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

ReplicaSet::ReplicaSet(const RunConfig& config, const data::Dataset& dataset, const strategy::Registry& registry,
                       const std::vector<fabric::Rank>& here) {
  const strategy::Description& description = registry.find(config.strategy_name());
  const compute::Problem problem = compute::Problem::of(dataset.train);
  const auto is_here = [&](int worker) { return here.empty() || std::find(here.begin(), here.end(), worker) != here.end(); };
  Replicas& whole = description.trains_parts ? viewers_ : replicas_;
  replicas_.resize(static_cast<std::size_t>(config.workers));
  whole.resize(replicas_.size());
  for (int worker = 0; worker < config.workers; ++worker) {
    if (!is_here(worker)) continue;
    const auto rank = static_cast<std::uint32_t>(worker);
    whole[rank] = compute::make_replica(config.model, problem, config.seed(), rank);
    if (!description.trains_parts) continue;
    const params::Layout& layout = whole[rank]->layout();
    const params::Layout part = description.part_layout(config.settings(description), config.roles(description), layout, worker);
    const std::string model = part == layout ? config.model : part_text(config, problem, part);
    replicas_[rank] = compute::make_replica(model, problem, config.seed(), rank);
  }
  const bool none = std::all_of(whole.begin(), whole.end(), [](const auto& replica) { return replica == nullptr; });
  if (none) whole[0] = compute::make_replica(config.model, problem, config.seed(), 0);
}

const params::Layout& ReplicaSet::layout() const {
  const Replicas& whole = viewers_.empty() ? replicas_ : viewers_;
  return (*std::find_if(whole.begin(), whole.end(), [](const auto& replica) { return replica != nullptr; }))->layout();
}

std::vector<compute::Replica*> ReplicaSet::pointers_to(const Replicas& replicas) {
  std::vector<compute::Replica*> result;
  result.reserve(replicas.size());
  for (const auto& replica : replicas) result.push_back(replica.get());
  return result;
}

}  // namespace starling::run
