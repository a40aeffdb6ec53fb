// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What must hold for strategies whose workers send each other gradients: replicas that got everything are equal (Statement 1 of Viviani et
// al.), what is lost is named, a slow model is not flooded by its generator, nobody waits for ever, and staleness is what it is said to be.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "contract/strategy_harness.h"

namespace starling::strategy {
namespace {

using namespace std::chrono_literals;

constexpr int kSchedules = 100;

int between(RandomStream& random, int least, int most) {
  return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

void make_random(fabric::SimOptions& sim, std::uint64_t seed) {
  RandomStream random(seed, 0, "stream schedule");
  sim.speeds.clear();
  for (int rank = 0; rank < sim.ranks; ++rank) sim.speeds.push_back({.ranks = fabric::RankSet{rank}, .factor = 0.1 + random.uniform()});
  sim.compute.time_per_unit = Distribution::lognormal(1ms, from_seconds(0.002 * random.uniform()));
  sim.network.link.latency = from_seconds(0.002 * random.uniform());
  sim.network.link.jitter = Distribution::exponential(from_seconds(0.004 * random.uniform()));
}

// Multiples of 1/8 that do not depend on the weights: with lr 1 all sums are exact, in any order.
std::vector<float> exact_gradient(int worker, int step, const std::vector<float>& weights) {
  std::vector<float> gradient(weights.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>((7 * worker + 11 * step + 3 * static_cast<int>(i)) % 17 - 8) / 8;
  }
  return gradient;
}

Trial exact_trial(const std::string& strategy, std::uint64_t seed) {
  RandomStream random(seed, 0, "stream trial");
  Trial trial{.strategy = strategy, .workers = between(random, 2, 6), .steps = between(random, 3, 12)};
  trial.gradient = exact_gradient;
  trial.lr = 1;
  trial.seed = seed;
  trial.settings["optimizer"] = "sgd";
  if (strategy != "all-to-all") trial.settings["weight"] = "1";
  trial.adjust = [seed](fabric::SimOptions& sim) { make_random(sim, seed); };
  return trial;
}

bool all_equal(const Outcome& outcome) {
  return std::all_of(outcome.replicas.begin(), outcome.replicas.end(),
                     [&](const std::vector<float>& replica) { return replica == outcome.replicas[0]; });
}

class Statement1 : public testing::TestWithParam<const char*> {};

TEST_P(Statement1, ReplicasThatGotEverythingAreEqual) {
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    Trial trial = exact_trial(GetParam(), seed);
    if (trial.strategy == "neighbours") trial.settings["topology"] = "complete";
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "") << "seed " << seed;
    ASSERT_TRUE(all_equal(outcome)) << "seed " << seed;
    ASSERT_TRUE(outcome.balance.balanced) << "seed " << seed << ": " << to_text(outcome.balance);
  }
}

// With momentum the order counts, and orders differ.
TEST_P(Statement1, MomentumBreaksIt) {
  int equal = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    Trial trial = exact_trial(GetParam(), seed);
    if (trial.strategy == "neighbours") trial.settings["topology"] = "complete";
    trial.settings["optimizer"] = "run";
    trial.optimiser = {.name = "momentum", .momentum = 0.5};
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "") << "seed " << seed;
    equal += all_equal(outcome) ? 1 : 0;
  }
  EXPECT_LT(equal, kSchedules / 10);
}

INSTANTIATE_TEST_SUITE_P(, Statement1, testing::Values("dogwild", "all-to-all", "neighbours"));

// With two workers every update has one place besides its own, so what the books say is lost are the messages that the network dropped.
TEST(Dogwild, EveryLossIsNamed) {
  std::uint64_t lost = 0;
  int differ = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    Trial trial = exact_trial("dogwild", seed);
    trial.workers = 2;
    trial.steps = 40;
    trial.adjust = [seed](fabric::SimOptions& sim) {
      make_random(sim, seed);
      sim.faults.drops = {{.probability = 0.1, .offered_only = true}};
    };
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "") << "seed " << seed;
    ASSERT_TRUE(outcome.balance.balanced) << "seed " << seed << ": " << to_text(outcome.balance);
    ASSERT_EQ(outcome.balance.produced, 80U);
    const auto merges = static_cast<std::uint64_t>(std::count_if(outcome.events.begin(), outcome.events.end(),
                                                                 [](const auto& event) { return event.kind == reference::Kind::merge; }));
    const auto dropped = outcome.balance.dropped.find(ledger::kLostOnTheWay);
    const std::uint64_t named = dropped == outcome.balance.dropped.end() ? 0 : dropped->second;
    ASSERT_EQ(named, 80U - merges) << "seed " << seed;
    ASSERT_EQ(outcome.balance.applied + named, outcome.balance.produced) << "seed " << seed;
    if (named == 0) {
      ASSERT_TRUE(all_equal(outcome)) << "seed " << seed;
    }
    differ += all_equal(outcome) ? 0 : 1;
    lost += named;
  }
  const double rate = static_cast<double>(lost) / (80.0 * kSchedules);
  EXPECT_NEAR(rate, 0.1, 0.01);
  EXPECT_GT(differ, kSchedules / 2);
}

TEST(Dogwild, BooksBalanceWithManyWorkersAndLosses) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Trial trial = exact_trial("dogwild", seed);
    trial.workers = 6;
    trial.pauses = {2, 3};
    trial.steps = 10;
    trial.new_objects = seed % 2 == 0;
    trial.adjust = [seed](fabric::SimOptions& sim) {
      make_random(sim, seed);
      sim.faults.drops = {{.probability = 0.1, .offered_only = true}};
      sim.faults.duplicates = {{.probability = 0.1}};
    };
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "") << "seed " << seed;
    ASSERT_TRUE(outcome.balance.balanced) << "seed " << seed << ": " << to_text(outcome.balance);
    ASSERT_EQ(outcome.balance.produced, 60U);
    ASSERT_GT(outcome.balance.dropped.at(ledger::kLostOnTheWay), 0U);
  }
}

// Nobody waits for a worker that does not read: what it has no room for is lost to it, and named.
TEST(Dogwild, DoesNotWaitForRoom) {
  Trial trial = exact_trial("dogwild", 1);
  trial.workers = 3;
  trial.steps = 50;
  trial.adjust = [](fabric::SimOptions& sim) {
    sim.queue_messages = 4;
    sim.speeds = {{.ranks = fabric::RankSet{2}, .factor = 0.02}};
  };
  const Outcome outcome = run_trial(trial);
  ASSERT_EQ(outcome.failures, "");
  ASSERT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
  EXPECT_GT(outcome.balance.dropped.at(ledger::kNoRoom), 50U);
  EXPECT_FALSE(outcome.balance.dropped.contains(ledger::kLostOnTheWay)) << to_text(outcome.balance);
}

// Queues of one message, and workers of very different speed: everybody waits for room all the time, and never in a circle.
TEST(AllToAll, SendersThatWaitForRoomAlwaysGetOn) {
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    for (const char* strategy : {"all-to-all", "neighbours"}) {
      Trial trial = exact_trial(strategy, seed);
      trial.adjust = [seed](fabric::SimOptions& sim) {
        make_random(sim, seed);
        sim.queue_messages = 1 + seed % 3;
      };
      const Outcome outcome = run_trial(trial);
      ASSERT_EQ(outcome.failures, "") << strategy << ", seed " << seed;
      ASSERT_TRUE(outcome.balance.balanced) << "seed " << seed;
      ASSERT_TRUE(outcome.balance.dropped.empty()) << "seed " << seed;
    }
  }
}

// So many batches.
class CountedBatches final : public BatchSource {
 public:
  explicit CountedBatches(std::uint64_t most) : most_(most) {}
  std::optional<Assignment> next() override {
    if (dealt == most_) return std::nullopt;
    ++dealt;
    return Assignment{.sample = dealt, .number = dealt, .indices = {static_cast<std::uint32_t>(dealt)}};
  }

  std::uint64_t dealt = 0;

 private:
  std::uint64_t most_;
};

TEST(AllToAll, ASlowModelIsNotFlooded) {
  for (const int ahead : {1, 2, 5}) {
    constexpr std::uint64_t kBatches = 200;
    const Registry registry = Registry::built_in();
    const Description& description = registry.find("all-to-all");
    Settings settings(description.name, description.options);
    settings.set("ahead", std::to_string(ahead));
    const Roles roles{.workers = 2, .generators = 1};
    const params::Layout layout = trial_layout();
    ledger::Ledger ledger(3, 2, {0, 1});
    CountedBatches batches(kBatches);
    std::map<int, std::vector<std::uint64_t>> taken;
    fabric::SimOptions sim;
    sim.ranks = 3;
    sim.speeds = {{.ranks = fabric::RankSet{0}, .factor = 0.01}};
    fabric::SimFabric fabric(sim);
    const fabric::RunReport report = fabric.run([&](fabric::Endpoint& endpoint) -> Status {
      const std::unique_ptr<Strategy> strategy = description.make({.endpoint = endpoint,
                                                                   .roles = roles,
                                                                   .layout = layout,
                                                                   .settings = settings,
                                                                   .account = ledger.account(endpoint.rank()),
                                                                   .optimiser = plain_sgd(),
                                                                   .batches = &batches});
      if (endpoint.rank() == 2) {
        STARLING_TRY(strategy->start_serving());
        return strategy->serve();
      }
      std::vector<float> weights = trial_weights();
      std::vector<float> model = weights;
      STARLING_TRY(strategy->start(weights, model));
      for (std::uint64_t step = 1;; ++step) {
        Result<std::optional<Assignment>> batch = strategy->next_batch();
        if (!batch) return batch.failure();
        if (!*batch) break;
        taken[endpoint.rank()].push_back((*batch)->number);
        STARLING_TRY(strategy->prepare(weights));
        std::vector<float> gradient(weights.size(), 0.125F);
        endpoint.compute(1, [] {});
        STARLING_TRY(strategy->exchange({.weights = weights, .gradient = gradient, .number = step, .lr = 0.1, .samples = 1}));
      }
      return strategy->finish(weights, model);
    });
    ASSERT_EQ(report.summary(), "");
    // The fast one makes a hundred steps in one of the slow one. The slow one gets what it asks for ahead, and no more.
    EXPECT_LE(taken[0].size(), static_cast<std::size_t>(3 + ahead)) << "ahead " << ahead;
    EXPECT_EQ(taken[0].size() + taken[1].size(), kBatches);
    std::vector<std::uint64_t> all = taken[0];
    all.insert(all.end(), taken[1].begin(), taken[1].end());
    std::sort(all.begin(), all.end());
    for (std::uint64_t i = 0; i < kBatches; ++i) ASSERT_EQ(all[i], i + 1);
    EXPECT_TRUE(ledger.close({}).balanced);
  }
}

// Tosi et al. report a mean staleness of 3 with 4 models. Models of equal speed that are not in step with each other give P - 1: of the
// receiver's own gradients two, of every other model's one.
TEST(AllToAll, MeanStalenessOfFourModelsIsThree) {
  Trial trial{.strategy = "all-to-all", .workers = 4, .steps = 400};
  trial.adjust = [](fabric::SimOptions& sim) {
    sim.speeds.clear();
    sim.compute.time_per_unit = Distribution::lognormal(1ms, 100us);
    sim.network.link.jitter = {};
  };
  const Outcome outcome = run_trial(trial);
  ASSERT_EQ(outcome.failures, "");
  EXPECT_NEAR(outcome.balance.set_staleness.mean(), 3, 0.1);
}

TEST(AllToAll, MeanStalenessGrowsWithTheModels) {
  for (const int workers : {2, 8, 16, 64}) {
    Trial trial{.strategy = "all-to-all", .workers = workers, .steps = 100};
    trial.adjust = [](fabric::SimOptions& sim) {
      sim.speeds.clear();
      sim.compute.time_per_unit = Distribution::lognormal(1ms, 200us);
      sim.network.link.jitter = {};
    };
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "");
    EXPECT_NEAR(outcome.balance.set_staleness.mean(), workers - 1, 0.05 * workers) << workers << " models";
  }
}

}  // namespace
}  // namespace starling::strategy
