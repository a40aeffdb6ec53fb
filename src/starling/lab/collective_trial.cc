// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/collective_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "starling/base/error.h"

namespace starling::lab {
namespace {

using collective::Algorithm;
using fabric::Endpoint;
using fabric::Group;

Status carry_out(Endpoint& endpoint, const Group& group, std::span<float> values, const CollectiveTrial& trial) {
  if (trial.operation == "all-reduce") {
    return collective::all_reduce(endpoint, group, values, {.algorithm = trial.algorithm, .subgroup = trial.subgroup});
  }
  if (trial.operation == "reduce-scatter") return collective::reduce_scatter(endpoint, group, values, trial.algorithm);
  if (trial.operation == "all-gather") return collective::all_gather(endpoint, group, values, trial.algorithm);
  if (trial.operation == "broadcast") return collective::broadcast(endpoint, group, values);
  return collective::barrier(endpoint, group);
}

// Small whole numbers, whose sums are exact in any order. They repeat along the vector, so that the expected sums are few.
constexpr std::size_t kPeriod = 7;
float input(int rank, std::size_t i) { return static_cast<float>((static_cast<std::size_t>(rank) + i) % kPeriod); }

bool is_right(std::span<const float> values, int rank, int ranks, const CollectiveTrial& trial) {
  const collective::Slice own = collective::slice_of(values.size(), ranks, rank);
  if (trial.operation == "all-reduce" || trial.operation == "reduce-scatter") {
    std::array<float, kPeriod> sums{};
    for (std::size_t i = 0; i < kPeriod; ++i) {
      for (int r = 0; r < ranks; ++r) sums[i] += input(r, i);
    }
    const bool whole = trial.operation == "all-reduce";
    for (std::size_t i = whole ? 0 : own.begin; i < (whole ? values.size() : own.begin + own.size); ++i) {
      if (values[i] != sums[i % kPeriod]) return false;
    }
  }
  if (trial.operation == "broadcast") {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != input(0, i)) return false;
    }
  }
  if (trial.operation == "all-gather") {
    for (int owner = 0; owner < ranks; ++owner) {
      const collective::Slice slice = collective::slice_of(values.size(), ranks, owner);
      for (std::size_t i = slice.begin; i < slice.begin + slice.size; ++i) {
        if (values[i] != input(owner, i)) return false;
      }
    }
  }
  return true;
}

}  // namespace

const std::vector<std::string>& collective_operations() {
  static const std::vector<std::string> kOperations{"all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier"};
  return kOperations;
}

std::vector<Algorithm> algorithms_of(const std::string& operation) {
  if (operation == "all-reduce") {
    return {Algorithm::automatic, Algorithm::flat, Algorithm::direct, Algorithm::ring, Algorithm::hierarchical};
  }
  if (operation == "reduce-scatter" || operation == "all-gather") return {Algorithm::direct, Algorithm::ring};
  if (operation == "broadcast" || operation == "barrier") return {Algorithm::automatic};
  const std::vector<std::string>& names = collective_operations();
  throw UserError(
      fmt::format("the operation is '{}', but it is one of {}.{}", operation, fmt::join(names, ", "), nearest_name_hint(operation, names)));
}

void check_algorithm(const std::string& operation, Algorithm algorithm) {
  const std::vector<Algorithm> algorithms = algorithms_of(operation);
  if (std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end()) return;
  std::string names;
  for (const Algorithm candidate : algorithms) names += fmt::format("{}{}", names.empty() ? "" : ", ", collective::to_string(candidate));
  throw UserError(fmt::format("{} has no algorithm '{}', but it has {}", operation, collective::to_string(algorithm), names));
}

CollectiveResult run_collective_trial(fabric::Fabric& fabric, const CollectiveTrial& trial) {
  check_algorithm(trial.operation, trial.algorithm);
  if (trial.repeat < 1) throw UserError(fmt::format("repeat is {}, but it must be at least 1", trial.repeat));
  struct Measured {
    Duration time = Duration::zero();
    fabric::Traffic traffic;
    bool right = true;
  };
  std::vector<Measured> measured(static_cast<std::size_t>(fabric.size()));
  const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    Measured& mine = measured[static_cast<std::size_t>(endpoint.rank())];
    const Group world = Group::world(endpoint.size());
    std::vector<float> values(trial.floats);
    STARLING_TRY(collective::barrier(endpoint, world));
    const fabric::Traffic before = endpoint.traffic();
    for (int i = 0; i < trial.repeat; ++i) {
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = input(endpoint.rank(), k);
      const Time begin = endpoint.now();
      STARLING_TRY(carry_out(endpoint, world, values, trial));
      mine.time += endpoint.now() - begin;
    }
    mine.traffic = endpoint.traffic();
    mine.traffic.messages_sent -= before.messages_sent;
    mine.traffic.bytes_sent -= before.bytes_sent;
    mine.right = is_right(values, endpoint.rank(), endpoint.size(), trial);
    return {};
  });
  if (!report.ok()) throw std::runtime_error(report.summary());
  CollectiveResult result;
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    if (!measured[rank].right) throw std::runtime_error(fmt::format("the result of rank {} is wrong", rank));
    result.time = std::max(result.time, measured[rank].time / trial.repeat);
    result.messages = std::max(result.messages, static_cast<double>(measured[rank].traffic.messages_sent) / trial.repeat);
    result.bytes = std::max(result.bytes, static_cast<double>(measured[rank].traffic.bytes_sent) / trial.repeat);
  }
  return result;
}

}  // namespace starling::lab
