// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/collective/collective.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "starling/base/error.h"
#include "starling/collective/exchange.h"

namespace starling::collective {
namespace {

using fabric::Deadline;
using fabric::Endpoint;
using fabric::Group;

constexpr std::array<std::pair<const char*, Algorithm>, 5> kAlgorithms{{{"automatic", Algorithm::automatic},
                                                                        {"flat", Algorithm::flat},
                                                                        {"direct", Algorithm::direct},
                                                                        {"ring", Algorithm::ring},
                                                                        {"hierarchical", Algorithm::hierarchical}}};

// Below this many floats the time is that of the messages, not of the bytes, and flat sends the fewest.
constexpr std::size_t kFlatBelow = 1024;

Status hierarchical_all_reduce(Endpoint& endpoint, const Group& group, std::span<float> values, int subgroup_size, Deadline deadline) {
  const int index = *group.index_of(endpoint.rank());
  const int first = index / subgroup_size * subgroup_size;
  std::vector<fabric::Rank> inside;
  std::vector<fabric::Rank> leaders;
  for (int i = first; i < std::min(first + subgroup_size, group.size()); ++i) inside.push_back(group[i]);
  for (int i = 0; i < group.size(); i += subgroup_size) leaders.push_back(group[i]);
  const Group subgroup(std::move(inside), group.context());

  Exchange reduce(endpoint, subgroup, Operation::reduce, deadline);
  STARLING_TRY(flat_reduce(reduce, values));
  if (index == first) {
    const Group between(std::move(leaders), group.context());
    STARLING_TRY(all_reduce(endpoint, between, values, {.algorithm = Algorithm::direct, .subgroup = 0, .deadline = deadline}));
  }
  return broadcast(endpoint, subgroup, values, 0, deadline);
}

}  // namespace

Algorithm parse_algorithm(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [candidate, algorithm] : kAlgorithms) {
    if (name == candidate) return algorithm;
    names.emplace_back(candidate);
  }
  throw UserError(
      fmt::format("the algorithm is '{}', but it is one of {}.{}", name, fmt::join(names, ", "), nearest_name_hint(name, names)));
}

const char* to_string(Algorithm algorithm) {
  for (const auto& [name, candidate] : kAlgorithms) {
    if (candidate == algorithm) return name;
  }
  return "unknown";
}

Slice slice_of(std::size_t size, int parts, int index) {
  const auto count = static_cast<std::size_t>(parts);
  const auto position = static_cast<std::size_t>(index);
  const std::size_t base = size / count;
  const std::size_t longer = size % count;
  return {position * base + std::min(position, longer), base + (position < longer ? 1 : 0)};
}

Status all_reduce(Endpoint& endpoint, const Group& group, std::span<float> values, const AllReduceOptions& options) {
  // Fixed for the whole operation, of which there are several parts below.
  const Deadline deadline = fix_deadline(endpoint, options.deadline);
  Exchange exchange(endpoint, group, Operation::reduce, deadline);
  if (group.size() == 1 || values.empty()) return {};
  switch (options.algorithm) {
    case Algorithm::automatic:
      if (std::optional<Status> done = endpoint.native_all_reduce(group, values, deadline)) return *std::move(done);
      if (values.size() < kFlatBelow) return flat_all_reduce(exchange, values);
      [[fallthrough]];
    case Algorithm::direct: {
      STARLING_TRY(direct_reduce_scatter(exchange, values));
      Exchange gather(endpoint, group, Operation::gather, deadline);
      return direct_all_gather(gather, values);
    }
    case Algorithm::flat:
      return flat_all_reduce(exchange, values);
    case Algorithm::ring: {
      STARLING_TRY(ring_reduce_scatter(exchange, values));
      Exchange gather(endpoint, group, Operation::gather, deadline);
      return ring_all_gather(gather, values);
    }
    case Algorithm::hierarchical:
      if (options.subgroup < 1) throw UserError(fmt::format("the subgroup has {} members, but it needs at least 1", options.subgroup));
      return hierarchical_all_reduce(endpoint, group, values, options.subgroup, deadline);
  }
  return {};
}

Status reduce_scatter(Endpoint& endpoint, const Group& group, std::span<float> values, Algorithm algorithm, Deadline deadline) {
  Exchange exchange(endpoint, group, Operation::reduce, deadline);
  if (group.size() == 1) return {};
  if (algorithm == Algorithm::ring) return ring_reduce_scatter(exchange, values);
  STARLING_CHECK(algorithm == Algorithm::automatic || algorithm == Algorithm::direct,
                 fmt::format("reduce_scatter is direct or ring, not {}", to_string(algorithm)));
  return direct_reduce_scatter(exchange, values);
}

Status all_gather(Endpoint& endpoint, const Group& group, std::span<float> values, Algorithm algorithm, Deadline deadline) {
  Exchange exchange(endpoint, group, Operation::gather, deadline);
  if (group.size() == 1) return {};
  if (algorithm == Algorithm::ring) return ring_all_gather(exchange, values);
  STARLING_CHECK(algorithm == Algorithm::automatic || algorithm == Algorithm::direct,
                 fmt::format("all_gather is direct or ring, not {}", to_string(algorithm)));
  return direct_all_gather(exchange, values);
}

Status broadcast(Endpoint& endpoint, const Group& group, std::span<float> values, int root, Deadline deadline) {
  STARLING_CHECK(root >= 0 && root < group.size(), fmt::format("broadcast from position {} of a group of {}", root, group.size()));
  Exchange exchange(endpoint, group, Operation::broadcast, deadline);
  if (group.size() == 1) return {};
  return tree_broadcast(exchange, values, root);
}

Status barrier(Endpoint& endpoint, const Group& group, Deadline deadline) {
  Exchange exchange(endpoint, group, Operation::barrier, deadline);
  for (int distance = 1; distance < group.size(); distance *= 2) {
    STARLING_TRY(exchange.send((exchange.index() + distance) % group.size(), fabric::Payload()));
    const Result<fabric::Payload> heard = exchange.receive((exchange.index() + group.size() - distance) % group.size(), 0);
    if (!heard) return heard.failure();
  }
  return {};
}

}  // namespace starling::collective
