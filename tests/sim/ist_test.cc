// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What asynchronous subnets promise: nobody waits for anybody, and what is merged is of one moment. Workers take steps of one from zero, so
// that every component of a part says how many steps it has seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <vector>

#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"
#include "starling/strategy/registry.h"
#include "starling/strategy/subnets.h"

namespace starling::strategy {
namespace {

using namespace std::chrono_literals;

constexpr int kPeriod = 3;

struct Counting {
  int workers = 4;
  int steps = 60;
  std::vector<int> steps_of{};  // By worker, where they differ.
  // After every exchange of a worker: how long it took, and what the coordinator then takes for the model.
  std::function<void(int worker, int step, Duration took, const std::vector<float>& model)> exchanged{};
};

params::Layout counting_layout() {
  params::Layout layout;
  layout.add("dense1.weight", {40, 6});
  layout.add("dense1.bias", {40});
  layout.add("dense2.weight", {5, 40});
  return layout;
}

// Without a bias of the outputs: nothing is shared.
std::string run_counting(fabric::Fabric& fabric, const Counting& counting, ledger::Balance& balance) {
  const Registry registry = Registry::built_in();
  const Description& description = registry.find("ist");
  Settings settings(description.name, description.options);
  settings.set("mode", "async");
  settings.set("period", std::to_string(kPeriod));
  const Roles roles{.workers = counting.workers};
  const params::Layout layout = counting_layout();
  ledger::Ledger ledger(counting.workers, counting.workers, {0});
  const fabric::RunReport report = fabric.run([&](fabric::Endpoint& endpoint) -> Status {
    const int worker = endpoint.rank();
    const std::unique_ptr<Strategy> strategy = description.make({.endpoint = endpoint,
                                                                 .roles = roles,
                                                                 .layout = layout,
                                                                 .settings = settings,
                                                                 .account = ledger.account(worker),
                                                                 .optimiser = default_optimiser()});
    std::vector<float> model(layout.size());
    std::vector<float> weights(description.part_layout(settings, roles, layout, worker).size());
    std::vector<float> gradient(weights.size());
    STARLING_TRY(strategy->start(weights, model));
    const int steps = counting.steps_of.empty() ? counting.steps : counting.steps_of[static_cast<std::size_t>(worker)];
    for (int step = 1; step <= steps; ++step) {
      endpoint.compute(1, [&] { std::fill(gradient.begin(), gradient.end(), -1.0F); });
      const Time begin = endpoint.now();
      STARLING_TRY(strategy->exchange(
          {.weights = weights, .gradient = gradient, .number = static_cast<std::uint64_t>(step), .lr = 1, .samples = 1}));
      const Duration took = endpoint.now() - begin;
      if (worker == 0) STARLING_TRY(strategy->peek(weights, model));
      if (counting.exchanged) counting.exchanged(worker, step, took, model);
      EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [&](float weight) { return weight == static_cast<float>(step); }))
          << "somebody has moved what worker " << worker << " owns alone";
    }
    STARLING_TRY(strategy->finish(weights, model));
    const Masks masks = Subnets(layout, counting.workers, 1).deal(0);
    for (int owner = 0; owner < counting.workers; ++owner) {
      const int expected = counting.steps_of.empty() ? counting.steps : counting.steps_of[static_cast<std::size_t>(owner)];
      for (std::size_t i = 0; i < masks[owner].size(); ++i) EXPECT_EQ(model[masks[owner].index(i)], static_cast<float>(expected));
    }
    return {};
  });
  balance = ledger.close({});
  return report.summary();
}

// What the model has of each worker is the state after one of its steps, for all of its components.
void expect_not_torn(int workers, const std::vector<float>& model) {
  const Masks masks = Subnets(counting_layout(), workers, 1).deal(0);
  for (int worker = 0; worker < workers; ++worker) {
    std::set<float> seen;
    for (std::size_t i = 0; i < masks[worker].size(); ++i) seen.insert(model[masks[worker].index(i)]);
    ASSERT_EQ(seen.size(), 1U) << "the part of worker " << worker << " is of several moments";
  }
}

// A coordinator that is slow, or others that are, and messages that take longer than many steps.
TEST(Ist, NobodyWaitsForAnybody) {
  for (const int slow : {0, 2}) {
    fabric::SimOptions sim;
    sim.ranks = 4;
    sim.compute.time_per_unit = Distribution::constant(1ms);
    sim.network.link.latency = 20ms;
    sim.speeds = {{.ranks = fabric::RankSet{slow}, .factor = 0.1}};
    fabric::SimFabric fabric(sim);
    Duration longest = Duration::zero();
    Counting counting;
    counting.exchanged = [&](int, int, Duration took, const std::vector<float>&) { longest = std::max(longest, took); };
    ledger::Balance balance;
    EXPECT_EQ(run_counting(fabric, counting, balance), "");
    EXPECT_LT(longest, 20us) << "with a slow worker " << slow;  // Handing over a message, and a poll.
    EXPECT_TRUE(balance.balanced) << to_text(balance);
    EXPECT_EQ(balance.produced, 80U);
    EXPECT_GT(balance.version_staleness.max(), 3U);
  }
}

// Nobody waits for room either: where the coordinator is so slow that pushes pile up, one that finds none is not made, and named.
TEST(Ist, ACoordinatorThatIsFarBehindMakesNobodyWait) {
  fabric::SimOptions sim;
  sim.ranks = 3;
  sim.queue_messages = 2;
  sim.compute.time_per_unit = Distribution::constant(1ms);
  sim.speeds = {{.ranks = fabric::RankSet{0}, .factor = 0.02}};
  fabric::SimFabric fabric(sim);
  Counting counting{.workers = 3, .steps = 30};
  Duration longest = Duration::zero();
  counting.exchanged = [&](int worker, int, Duration took, const std::vector<float>&) {
    if (worker == 0) {
      EXPECT_LT(took, 1ms) << "the coordinator waits for somebody";
    }
    longest = std::max(longest, took);
  };
  ledger::Balance balance;
  EXPECT_EQ(run_counting(fabric, counting, balance), "");
  EXPECT_LT(longest, 1ms);
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  const auto dropped = balance.dropped.find(ledger::kNoRoom);
  ASSERT_NE(dropped, balance.dropped.end());
  EXPECT_GT(dropped->second, 10U);
  EXPECT_EQ(balance.applied + dropped->second, balance.produced);
}

TEST(IstProperty, WhatIsMergedIsOfOneMoment) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomStream random(seed, 0, "ist test");
    fabric::SimOptions sim;
    sim.ranks = 2 + static_cast<int>(random.below(5));
    sim.seed = seed;
    sim.compute.time_per_unit = Distribution::lognormal(1ms, 2ms);
    sim.network.link.jitter = Distribution::exponential(5ms);
    Counting counting{.workers = sim.ranks};
    for (int worker = 0; worker < sim.ranks; ++worker) {
      sim.speeds.push_back({.ranks = fabric::RankSet{worker}, .factor = 0.1 + random.uniform()});
      counting.steps_of.push_back(1 + static_cast<int>(random.below(50)));
    }
    fabric::SimFabric fabric(sim);
    counting.exchanged = [&](int worker, int, Duration, const std::vector<float>& model) {
      if (worker == 0) expect_not_torn(counting.workers, model);
    };
    ledger::Balance balance;
    EXPECT_EQ(run_counting(fabric, counting, balance), "");
    EXPECT_TRUE(balance.balanced) << to_text(balance);
    EXPECT_EQ(balance.applied, balance.produced);
  }
}

TEST(Ist, WhatIsMergedIsOfOneMomentOnThreads) {
  fabric::FabricOptions options;
  options.ranks = 4;
  fabric::ThreadsFabric fabric(options);
  Counting counting{.steps = 300};
  counting.exchanged = [&](int worker, int, Duration, const std::vector<float>& model) {
    if (worker == 0) expect_not_torn(counting.workers, model);
  };
  ledger::Balance balance;
  EXPECT_EQ(run_counting(fabric, counting, balance), "");
  EXPECT_TRUE(balance.balanced) << to_text(balance);
}

}  // namespace
}  // namespace starling::strategy
