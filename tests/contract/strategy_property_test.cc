// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What must hold under any delays, on random schedules in the simulator: the bound of SSP, and that replicas to which every plain SGD
// update is delivered end up equal (Statement 1 of Viviani et al.), with the two ways to break that.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "contract/strategy_harness.h"
#include "starling/base/random.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/ledger/ledger.h"
#include "starling/tensor/channel.h"

namespace starling::strategy {
namespace {

using namespace std::chrono_literals;

constexpr int kSchedules = 200;

int between(RandomStream& random, int least, int most) {
  return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

// Speeds that differ by up to a factor of ten, pauses before pushes, links that are now fast and now slow.
void make_random(fabric::SimOptions& sim, std::uint64_t seed) {
  RandomStream random(seed, 0, "property schedule");
  sim.speeds.clear();
  for (int rank = 0; rank < sim.ranks; ++rank) sim.speeds.push_back({.ranks = fabric::RankSet{rank}, .factor = 0.1 + random.uniform()});
  sim.compute.time_per_unit = Distribution::lognormal(1ms, from_seconds(0.002 * random.uniform()));
  sim.network.link.latency = from_seconds(0.001 * random.uniform());
  sim.network.link.jitter = Distribution::exponential(from_seconds(0.004 * random.uniform()));
  sim.delays = {{.point = "push", .ranks = fabric::RankSet{between(random, 0, sim.ranks - 1)}, .time = Distribution::exponential(3ms)}};
}

// Watches the clocks of the workers.
struct Clocks {
  explicit Clocks(const Trial& trial) : steps(trial.steps), finished(static_cast<std::size_t>(trial.workers)) {}

  // A worker that starts clock c + 1 has finished c. How far it is ahead of the slowest of those that are not through.
  void begins(int step) {
    for (const int clock : finished) {
      if (clock < steps) largest_lead = std::max(largest_lead, step - 1 - clock);
    }
  }
  void computed(int worker, int step) { finished[static_cast<std::size_t>(worker)] = step; }

  int steps;
  std::vector<int> finished;
  int largest_lead = 0;
};

// By what had reached the server when it handed out weights: how many clocks old the oldest update is that they lack, less one.
int largest_lead_at_server(const Outcome& outcome, const Trial& trial) {
  std::vector<int> pushes(static_cast<std::size_t>(trial.workers));
  int largest = 0;
  for (const reference::Event& event : outcome.events) {
    int& own = pushes[static_cast<std::size_t>(event.worker)];
    if (event.kind == reference::Kind::push) ++own;
    if (event.kind == reference::Kind::pull) largest = std::max(largest, own - *std::min_element(pushes.begin(), pushes.end()));
  }
  return largest;
}

TEST(StrategyProperty, TheBoundOfSspIsReachedAndNeverExceeded) {
  for (int bound = 0; bound <= 4; ++bound) {
    int reached = 0;
    for (int i = 0; i < kSchedules; ++i) {
      const auto seed = static_cast<std::uint64_t>(1000 * bound + i + 1);
      RandomStream random(seed, 0, "property trial");
      Trial trial{.strategy = "ssp", .settings = {{"bound", std::to_string(bound)}}};
      trial.workers = between(random, 2, 5);
      trial.servers = between(random, 1, 2);
      trial.steps = between(random, 6, 12);
      trial.seed = seed;
      Clocks clocks(trial);
      trial.begins = [&](int /*worker*/, int step) { clocks.begins(step); };
      trial.computed = [&](int worker, int step) { clocks.computed(worker, step); };
      trial.adjust = [&](fabric::SimOptions& sim) { make_random(sim, seed); };
      const Outcome outcome = run_trial(trial);
      ASSERT_EQ(outcome.failures, "") << "seed " << seed;
      ASSERT_LE(clocks.largest_lead, bound) << "seed " << seed << ", " << trial.workers << " workers, " << trial.servers << " servers";
      ASSERT_LE(largest_lead_at_server(outcome, trial), bound) << "seed " << seed;
      ASSERT_TRUE(outcome.balance.balanced) << "seed " << seed << ": " << to_text(outcome.balance);
      reached += clocks.largest_lead == bound ? 1 : 0;
    }
    EXPECT_GT(reached, kSchedules / 4) << "with bound " << bound << " a worker is rarely so far ahead, so this shows little";
  }
}

// Every rank applies its own updates at once and sends them to all others, which apply them when they look: nobody waits before the end.
struct AllToAll {
  double momentum = 0;
  double drop = 0;  // Probability that a message is lost.
};

struct Replicas {
  std::vector<std::vector<float>> weights{};
  std::vector<std::vector<int>> orders{};  // By rank: the origins of the updates, as it applied them.
  ledger::Balance balance{};
  std::uint64_t lost_messages = 0;

  bool equal() const {
    return std::all_of(weights.begin(), weights.end(), [&](const std::vector<float>& one) { return one == weights[0]; });
  }
};

constexpr int kMostRanks = 6;
constexpr int kMostSteps = 8;
constexpr std::size_t kMarks = kMostRanks;  // The last components of the weights.
constexpr std::size_t kWeights = 6 + kMarks;

// Multiples of 1/8 that depend on what the replica has seen so far; so sums of them are exact, in any order. Besides, each rank has a
// component that it alone moves, in step k by 2^k: replicas that have got different updates never come to the same weights by chance.
std::vector<float> exact_gradient(int rank, int step, const std::vector<float>& weights) {
  std::vector<float> gradient(weights.size());
  for (std::size_t i = 0; i < kWeights - kMarks; ++i) {
    const int seen = static_cast<int>(std::floor(weights[i]));
    const int mixed = (7 * rank + 5 * step + 3 * static_cast<int>(i) + 11 * seen) % 8;
    gradient[i] = static_cast<float>(2 * mixed + 1) / 8;
  }
  gradient[kWeights - kMarks + static_cast<std::size_t>(rank)] = std::ldexp(1.0F, step);
  return gradient;
}

// One rank's part.
class AllToAllRank {
 public:
  AllToAllRank(fabric::Endpoint& endpoint, ledger::Account& account, const AllToAll& options)
      : endpoint_(endpoint), account_(account), options_(options), channel_(endpoint, {.tag = 1}), random_(endpoint.random("pauses")) {}

  Status run(int steps) {
    for (int step = 1; step <= steps; ++step) {
      STARLING_TRY(apply_what_is_here());
      const std::vector<float> gradient = exact_gradient(endpoint_.rank(), step, weights_);
      const params::Stamp stamp{.id = account_.produced(), .version = account_.contents().size(), .contents = account_.contents()};
      endpoint_.sleep(from_seconds(0.004 * random_.uniform()));
      apply(gradient, stamp);
      for (fabric::Rank to = 0; to < endpoint_.size(); ++to) {
        if (to != endpoint_.rank()) {
          STARLING_TRY(channel_.send(to, tensor::TensorView::of(std::span<const float>(gradient)), stamp));
        }
      }
    }
    return drain(static_cast<std::size_t>(steps * endpoint_.size()));
  }

  const std::vector<float>& weights() const { return weights_; }
  const std::vector<int>& order() const { return order_; }

 private:
  Status apply_what_is_here() {
    while (std::optional<Result<tensor::Incoming>> incoming = channel_.poll(fabric::kAnyRank)) {
      if (!*incoming) return incoming->failure();
      apply((*incoming)->tensor.as<float>(), (*incoming)->stamp);
    }
    return {};
  }

  // What is lost never comes, so the wait for it ends.
  Status drain(std::size_t updates) {
    while (order_.size() < updates) {
      Result<tensor::Incoming> incoming = channel_.receive(fabric::kAnyRank, fabric::Deadline::after(1s));
      if (!incoming && options_.drop > 0) return {};
      if (!incoming) return incoming.failure();
      apply(incoming->tensor.as<float>(), incoming->stamp);
    }
    return {};
  }

  void apply(std::span<const float> gradient, const params::Stamp& stamp) {
    constexpr float kRate = 0.125F;
    account_.applied(stamp, account_.contents().size(), account_.contents());
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      velocity_[i] = static_cast<float>(options_.momentum) * velocity_[i] + gradient[i];
      weights_[i] -= kRate * velocity_[i];
    }
    order_.push_back(stamp.id.origin);
  }

  fabric::Endpoint& endpoint_;
  ledger::Account& account_;
  const AllToAll& options_;
  tensor::Channel channel_;
  RandomStream random_;
  std::vector<float> weights_ = std::vector<float>(kWeights, 1.0F);
  std::vector<float> velocity_ = std::vector<float>(kWeights);
  std::vector<int> order_;
};

Replicas exchange_all_to_all(const AllToAll& options, std::uint64_t seed) {
  RandomStream random(seed, 0, "property all to all");
  fabric::SimOptions sim;
  sim.ranks = between(random, 2, kMostRanks);
  sim.seed = seed;
  make_random(sim, seed);
  if (options.drop > 0) sim.faults.drops = {{.probability = options.drop}};
  const int steps = between(random, 3, kMostSteps);
  std::vector<int> everywhere;
  for (int rank = 0; rank < sim.ranks; ++rank) everywhere.push_back(rank);
  ledger::Ledger ledger(sim.ranks, sim.ranks, everywhere);
  Replicas replicas;
  replicas.weights.resize(everywhere.size());
  replicas.orders.resize(everywhere.size());
  fabric::SimFabric fabric(sim);
  const fabric::RunReport report = fabric.run([&](fabric::Endpoint& endpoint) -> Status {
    AllToAllRank rank(endpoint, ledger.account(endpoint.rank()), options);
    STARLING_TRY(rank.run(steps));
    replicas.weights[static_cast<std::size_t>(endpoint.rank())] = rank.weights();
    replicas.orders[static_cast<std::size_t>(endpoint.rank())] = rank.order();
    return {};
  });
  EXPECT_EQ(report.summary(), "") << "seed " << seed;
  replicas.balance = ledger.close({});
  replicas.lost_messages = fabric.message_faults().dropped;
  return replicas;
}

TEST(StrategyProperty, ReplicasThatGetEveryPlainUpdateEndUpEqual) {
  int different_orders = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const Replicas replicas = exchange_all_to_all({}, seed);
    ASSERT_TRUE(replicas.equal()) << "seed " << seed;
    ASSERT_TRUE(replicas.balance.balanced) << "seed " << seed << ": " << to_text(replicas.balance);
    ASSERT_NE(replicas.weights[0][0], 1.0F) << "seed " << seed;
    different_orders += replicas.orders[0] != replicas.orders[1] ? 1 : 0;
  }
  EXPECT_GT(different_orders, kSchedules * 9 / 10) << "replicas apply in the same order, so this shows little";
}

// The first counter-example; and the books say so.
TEST(StrategyProperty, ReplicasThatLackUpdatesDiffer) {
  int with_losses = 0;
  int different = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const Replicas replicas = exchange_all_to_all({.drop = 0.1}, seed);
    ASSERT_EQ(replicas.balance.balanced, replicas.lost_messages == 0) << "seed " << seed;
    if (replicas.lost_messages == 0) {
      ASSERT_TRUE(replicas.equal()) << "seed " << seed;
      continue;
    }
    ++with_losses;
    different += replicas.equal() ? 0 : 1;
  }
  EXPECT_GT(with_losses, kSchedules / 2);
  EXPECT_EQ(different, with_losses);
}

// The second: a velocity is not a sum, so the order of arrival matters.
TEST(StrategyProperty, ReplicasWithMomentumDiffer) {
  int different = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const Replicas replicas = exchange_all_to_all({.momentum = 0.5}, seed);
    ASSERT_TRUE(replicas.balance.balanced) << "seed " << seed;
    different += replicas.equal() ? 0 : 1;
  }
  EXPECT_GT(different, kSchedules * 9 / 10);
}

}  // namespace
}  // namespace starling::strategy
