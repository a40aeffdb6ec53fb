// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The same configuration and seed: byte-identical traces and results, whatever the pool and the load of the machine.
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "sim/traffic_program.h"

namespace starling::fabric {
namespace {

struct Observed {
  std::string trace;
  std::vector<float> results;
  Time end;

  bool operator==(const Observed&) const = default;
};

Observed observe(SimOptions options, int pool_threads) {
  std::ostringstream trace;
  options.pool_threads = pool_threads;
  options.trace = &trace;
  Observed observed;
  observed.results.resize(static_cast<std::size_t>(options.ranks));
  SimFabric fabric(options);
  const RunReport report = fabric.run(traffic_program(observed.results));
  EXPECT_EQ(report.summary(), "");
  observed.trace = trace.str();
  observed.end = fabric.end_time();
  return observed;
}

TEST(Determinism, TheSameSeedTwiceAndAnyPoolGiveTheSameBytes) {
  for (const int ranks : {3, 16}) {
    const Observed first = observe(eventful_options(ranks, 7), 1);
    EXPECT_GT(first.trace.size(), 10000U);
    EXPECT_TRUE(observe(eventful_options(ranks, 7), 1) == first);
    EXPECT_TRUE(observe(eventful_options(ranks, 7), 2) == first);
    EXPECT_TRUE(observe(eventful_options(ranks, 7), 8) == first);
  }
}

TEST(Determinism, AnotherSeedGivesAnotherRun) {
  EXPECT_NE(observe(eventful_options(5, 7), 1).trace, observe(eventful_options(5, 8), 1).trace);
}

TEST(Determinism, TheLoadOfTheMachineDoesNotShow) {
  const Observed quiet = observe(eventful_options(8, 3), 2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 4; ++i) {
    load.emplace_back([&] {
      while (!stop) std::this_thread::yield();
    });
  }
  EXPECT_TRUE(observe(eventful_options(8, 3), 2) == quiet);
  stop = true;
  for (std::thread& thread : load) thread.join();
}

// Switching a fault on that never strikes changes nothing else: every purpose has a random stream of its own.
TEST(Determinism, AFaultThatDoesNotStrikeLeavesTheRunAlone) {
  SimOptions with = eventful_options(5, 7);
  with.faults.drops = {{.probability = 0}};
  with.faults.duplicates = {{.probability = 0}};
  EXPECT_TRUE(observe(with, 1) == observe(eventful_options(5, 7), 1));
}

TEST(Determinism, FiftySeedsOfTheEventfulProgramEnd) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_TRUE(observe(eventful_options(5, seed), 1) == observe(eventful_options(5, seed), 3));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace starling::fabric
