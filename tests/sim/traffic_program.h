// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A program that uses everything a fabric offers, for tests of the simulator as a whole: arithmetic, random traffic, polls, windows,
// collectives, delays.
#pragma once

#include <chrono>
#include <cmath>
#include <vector>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"

namespace starling::fabric {

// Each rank leaves what it computed in results[rank].
inline Body traffic_program(std::vector<float>& results) {
  return [&results](Endpoint& endpoint) -> Status {
    using namespace std::chrono_literals;
    RandomStream random = endpoint.random("program");
    auto window = endpoint.open_window("state", 64, 0);
    if (!window) return window.failure();
    std::vector<float> state(64, 1);
    for (int step = 0; step < 6; ++step) {
      endpoint.pass("step");
      endpoint.compute(random.uniform(), [&] {
        for (int i = 0; i < 2000; ++i) {
          for (float& value : state) value = std::sqrt(value * 1.5F + 0.25F);
        }
      });
      STARLING_TRY((*window)->add(0, state));
      STARLING_TRY((*window)->read(0, state));
      const auto to = static_cast<Rank>(random.below(static_cast<std::uint64_t>(endpoint.size())));
      STARLING_TRY(endpoint.send(to, 5, Payload::copy_of(std::span<const float>(state))));
      endpoint.sleep(std::chrono::microseconds(random.below(300)));
      while (std::optional<Message> message = endpoint.poll(tagged(5))) state[0] += message->payload.as<float>()[1];
      for (float& value : state) value = std::fmod(value, 8.0F);
    }
    STARLING_TRY(collective::all_reduce(endpoint, Group::world(endpoint.size()), state, {.algorithm = collective::Algorithm::ring}));
    results[static_cast<std::size_t>(endpoint.rank())] = state[0];
    return collective::barrier(endpoint, Group::world(endpoint.size()));
  };
}

// Every part of the time model and every fault that leaves the program able to finish.
inline SimOptions eventful_options(int ranks, std::uint64_t seed) {
  using namespace std::chrono_literals;
  SimOptions options;
  options.ranks = ranks;
  options.seed = seed;
  options.compute.time_per_unit = Distribution::lognormal(1ms, 500us);
  options.speeds = {{RankSet{0}, 0.5}};
  options.network.link = {.latency = 50us, .bytes_per_second = 1e8, .jitter = Distribution::exponential(20us)};
  options.network.rules = {{.from = RankSet{1}, .latency = 200us}};
  options.delays = {{"step", RankSet{}, Distribution::gauss(300us, 100us)}};
  options.faults.spikes = {{.probability = 0.1, .delay = Distribution::constant(1ms)}};
  options.faults.slow = {{RankSet{2}, 3, {1ms, 5ms}}};
  options.faults.partitions = {{RankSet{1}, {2ms, 4ms}}};
  return options;
}

}  // namespace starling::fabric
