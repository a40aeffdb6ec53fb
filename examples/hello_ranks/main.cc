// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// One program, two worlds: every rank computes, all add up what they have, and rank 0 says when it was done. First on threads, in real
// time; then on a simulated network with slow links and one slow rank, in virtual time.
#include <chrono>
#include <iostream>
#include <vector>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"

using namespace std::chrono_literals;
using namespace starling;
using namespace starling::fabric;

// Knows nothing of threads or simulation: whatever it needs, it asks of its endpoint.
Status program(Endpoint& endpoint) {
  std::vector<float> values(1000);
  endpoint.compute(10, [&] {
    for (float& value : values) value = static_cast<float>(endpoint.rank() + 1);
  });
  STARLING_TRY(collective::all_reduce(endpoint, Group::world(endpoint.size()), values));
  if (endpoint.rank() == 0) std::cout << "the sum is " << values[0] << ", known after " << format_duration(endpoint.now()) << '\n';
  return {};
}

int main() {
  FabricOptions options;
  options.ranks = 4;
  ThreadsFabric threads(options);
  std::cout << "threads: ";
  const RunReport real = threads.run(program);

  SimOptions sim;
  sim.ranks = 4;
  sim.compute.time_per_unit = Distribution::constant(1ms);
  sim.speeds = {{RankSet{3}, 0.5}};
  sim.network.link = {.latency = 2ms, .bytes_per_second = 1e6};
  SimFabric simulated(sim);
  std::cout << "sim:     ";
  const RunReport virtual_time = simulated.run(program);

  std::cerr << real.summary() << virtual_time.summary();
  return real.ok() && virtual_time.ok() ? 0 : 1;
}
