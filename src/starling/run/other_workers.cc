// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/other_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/base/error.h"

namespace starling::run {
namespace {

using strategy::Description;
using strategy::Roles;

using Vectors = std::map<std::string, std::span<const float>>;  // Of one rank, by name.
using Numbers = std::map<std::string, std::uint64_t>;

constexpr const char* kWeights = "weights";

struct RankState {
  Vectors vectors{};
  Numbers numbers{};
};

// "Take one from the end of an epoch: --checkpoint step-00000469."
std::string take_epoch_end(const Checkpoint& checkpoint) {
  const std::optional<std::string> name = CheckpointStore(std::filesystem::path(checkpoint.path).parent_path().string()).latest_epoch_end();
  return fmt::format("Take one from the end of an epoch{}.", name ? ": --checkpoint " + *name : "");
}

[[noreturn]] void refuse(const Checkpoint& checkpoint, const Roles& now, const std::string& reason) {
  throw UserError(fmt::format("the checkpoint '{}' is of {} workers and cannot go on with {}: {}", checkpoint.path,
                              checkpoint.state.workers.size(), now.workers, reason));
}

std::vector<RankState> states_by_rank(const Checkpoint& checkpoint, const Roles& before, const Roles& now) {
  std::vector<RankState> states(static_cast<std::size_t>(before.ranks()));
  const auto of = [&](const std::string& full_name) -> std::pair<RankState&, std::string> {
    const auto [rank, name] = split_rank(full_name, before.ranks());
    if (rank < 0) refuse(checkpoint, now, fmt::format("its '{}' belongs to no rank", full_name));
    return {states[static_cast<std::size_t>(rank)], name};
  };
  for (const params::Slice& slice : checkpoint.vectors.layout.slices()) {
    const auto& [state, name] = of(slice.name);
    state.vectors[name] = params::Layout::part(std::span<const float>(checkpoint.vectors.values), slice);
  }
  for (const auto& [full_name, number] : checkpoint.state.numbers) {
    const auto& [state, name] = of(full_name);
    state.numbers[name] = number;
  }
  return states;
}

// The weights of this worker differ from those of the run in buffers only, such as the statistics of a batch norm, whose mean goes on.
bool has_parameters_of_all(const Checkpoint& checkpoint, const RankState& state) {
  const auto own = state.vectors.find(kWeights);
  const std::span<const float> all(checkpoint.weights.values);
  const std::size_t parameters = checkpoint.weights.layout.parameter_count();
  return own != state.vectors.end() && own->second.size() == all.size() &&
         std::ranges::equal(own->second.first(parameters), all.first(parameters));
}

// What all workers have alike. Where weights are at servers or in a window, those of the workers are copies that they fetch anew.
RankState common_state(const Checkpoint& checkpoint, std::vector<RankState>& states, const Description& description, const Roles& before,
                       const Roles& now) {
  const bool weights_elsewhere = description.places == strategy::Places::servers || description.places == strategy::Places::centre;
  RankState common;
  for (int worker = 0; worker < before.workers; ++worker) {
    RankState& state = states[static_cast<std::size_t>(worker)];
    if (weights_elsewhere || has_parameters_of_all(checkpoint, state)) state.vectors.erase(kWeights);
    if (state.vectors.contains(kWeights)) {
      refuse(checkpoint, now,
             "it is from between two averages, when every worker has weights of its own. Take one from the end of a round.");
    }
    if (worker == 0) common = state;
    for (const auto& [name, values] : state.vectors) {
      const auto found = common.vectors.find(name);
      if (found == common.vectors.end() || !std::ranges::equal(found->second, values)) {
        refuse(checkpoint, now,
               fmt::format("every worker has a state of its own ('{}'). That of plain SGD on the workers, and of optimisers on servers, "
                           "would go on.",
                           name));
      }
    }
    // Where no vectors come with it, nothing depends on how often a worker's own rule was applied.
    for (const auto& [name, number] : state.numbers) common.numbers[name] = std::max(common.numbers[name], number);
  }
  return common;
}

// One place in the epoch for all, from which more or fewer workers go on without seeing a sample twice.
WorkerState common_place(const Checkpoint& checkpoint, const std::string& partition, const Roles& now) {
  const std::vector<WorkerState>& workers = checkpoint.state.workers;
  WorkerState place{.progress = workers[0].progress, .order = workers[0].order};
  for (const WorkerState& worker : workers) {
    if (worker.progress.epoch != place.progress.epoch || worker.progress.sample != place.progress.sample) {
      refuse(checkpoint, now, "its workers stand at different places of the epoch. " + take_epoch_end(checkpoint));
    }
    place.progress.number = std::max(place.progress.number, worker.progress.number);
  }
  if (partition == "shared" || partition == "queue") return place;
  if (place.progress.sample != 0) {
    refuse(checkpoint, now,
           fmt::format("with the partition '{}' workers have samples of their own, which are dealt anew only at the end of an epoch. {}",
                       partition, take_epoch_end(checkpoint)));
  }
  place.order = {.epoch = place.progress.epoch};  // In the order of an epoch that none of its new samples was in.
  return place;
}

// Totals go on with the first worker.
std::vector<WorkerState> dealt(const RunState& state, const WorkerState& place, const Roles& now) {
  std::vector<WorkerState> workers(static_cast<std::size_t>(now.workers), place);
  for (const WorkerState& worker : state.workers) {
    workers[0].samples += worker.samples;
    workers[0].skipped += worker.skipped;
    workers[0].epoch_loss_sum += worker.epoch_loss_sum;
    workers[0].epoch_samples += worker.epoch_samples;
  }
  return workers;
}

void add_rank(const RankState& state, int rank, Checkpoint& result) {
  for (const auto& [name, values] : state.vectors) {
    result.vectors.layout.add(fmt::format("rank{}/{}", rank, name), {static_cast<std::int64_t>(values.size())});
    result.vectors.values.insert(result.vectors.values.end(), values.begin(), values.end());
  }
  for (const auto& [name, number] : state.numbers) result.state.numbers[fmt::format("rank{}/{}", rank, name)] = number;
}

}  // namespace

std::pair<int, std::string> split_rank(const std::string& name, int ranks) {
  constexpr std::string_view kRank = "rank";
  const std::size_t slash = name.find('/');
  int rank = -1;
  if (!name.starts_with(kRank) || slash == std::string::npos) return {-1, ""};
  const auto [end, error] = std::from_chars(name.data() + kRank.size(), name.data() + slash, rank);
  if (error != std::errc() || end != name.data() + slash || rank < 0 || rank >= ranks) return {-1, ""};
  return {rank, name.substr(slash + 1)};
}

std::string resuming_strategies(const strategy::Registry& registry) {
  std::vector<std::string> names;
  for (const Description& description : registry.all()) {
    if (description.resumes_with_other_workers) names.push_back(description.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Checkpoint with_other_workers(const Checkpoint& checkpoint, const RunConfig& before, const RunConfig& now,
                              const strategy::Registry& registry) {
  const Description& description = registry.find(now.strategy_name());
  const Roles old_roles = before.roles(description);
  const Roles roles = now.roles(description);
  if (!description.resumes_with_other_workers) {
    refuse(
        checkpoint, roles,
        fmt::format("with strategy {} every worker has a part of the run that is its own. Leave --workers out; strategies that can are {}.",
                    description.name, resuming_strategies(registry)));
  }
  std::vector<RankState> states = states_by_rank(checkpoint, old_roles, roles);
  const RankState common = common_state(checkpoint, states, description, old_roles, roles);
  const WorkerState place = common_place(checkpoint, description.needs_generator ? "queue" : now.partition, roles);
  Checkpoint result = checkpoint;
  result.vectors = {};
  result.state.numbers.clear();
  result.state.workers = dealt(checkpoint.state, place, roles);
  // The sum of all steps names checkpoints, and must go on although there are more or fewer to add up.
  const std::uint64_t sum = place.progress.number * result.state.workers.size();
  result.state.steps_before = static_cast<std::int64_t>(checkpoint.state.steps) - static_cast<std::int64_t>(sum);
  for (int worker = 0; worker < roles.workers; ++worker) add_rank(common, worker, result);
  for (int server = 0; server < roles.servers; ++server) {
    add_rank(states[static_cast<std::size_t>(old_roles.server(server))], roles.server(server), result);
  }
  return result;
}

}  // namespace starling::run
