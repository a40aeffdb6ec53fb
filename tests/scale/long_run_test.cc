// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "starling/fabric/sim/sim_fabric.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

// Every wait leaves a timer behind; over a long run they must not pile up.
TEST(LongRun, StaysSmall) {
  SimOptions sim;
  sim.ranks = 2;
  sim.timeout = 1000s;
  sim.network.link.latency = 1us;
  const auto resident_pages = [] {
    std::ifstream statm("/proc/self/statm");
    long total = 0;
    long resident = 0;
    statm >> total >> resident;
    return resident;
  };
  const long before = resident_pages();
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    for (int i = 0; i < 300000; ++i) {
      if (endpoint.rank() == i % 2) {
        STARLING_TRY(endpoint.send(1 - endpoint.rank(), 0, {}));
      } else {
        const Result<Message> message = endpoint.receive(from(1 - endpoint.rank()));
        if (!message) return message.failure();
      }
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_LT(resident_pages() - before, 2000);  // 300,000 timers would be some 5,000 pages.
}

}  // namespace
}  // namespace starling::fabric
