// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What must hold for strategies that gossip, under any speeds, delays and queues, on random schedules in the simulator: nobody waits for
// ever, the weights α of gosgd add up to 1 at every moment, counting models under way, and mixing alone moves no mean.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/random.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/ledger/ledger.h"
#include "starling/strategy/registry.h"
#include "starling/tensor/wire.h"

namespace starling::strategy {
namespace {

using namespace std::chrono_literals;

constexpr int kWorkerCounts[] = {1, 2, 3, 5, 8};
constexpr std::uint64_t kSchedules = 40;
constexpr std::size_t kWeights = 7;

// The α of all workers and of all models under way. In the simulator one rank runs at a time, so whoever enters a call of its endpoint
// finds all others in calls of theirs: nothing is half done.
class Alphas {
 public:
  explicit Alphas(int workers)
      : held_(static_cast<std::size_t>(workers), 1.0 / workers), strategies_(held_.size()), under_way_(held_.size()) {}

  void attach(int worker, Strategy* strategy) { strategies_[static_cast<std::size_t>(worker)] = strategy; }
  // What it held last stays on record: of a worker that is lost, it is gone with it.
  void detach(int worker) {
    held_[static_cast<std::size_t>(worker)] = held_by(worker);
    strategies_[static_cast<std::size_t>(worker)] = nullptr;
  }

  void sent(int to, double alpha) { under_way_[static_cast<std::size_t>(to)] += alpha; }
  void arrived(int to, double alpha) { under_way_[static_cast<std::size_t>(to)] -= alpha; }
  double under_way_to(int worker) const { return under_way_[static_cast<std::size_t>(worker)]; }

  double held_by(int worker) const {
    Strategy* strategy = strategies_[static_cast<std::size_t>(worker)];
    if (strategy == nullptr) return held_[static_cast<std::size_t>(worker)];
    params::StateList state;
    strategy->list_state(state);
    for (const params::StateList::Number& number : state.numbers()) {
      if (number.name == "alpha_bits") return std::bit_cast<double>(*number.value);
    }
    return 0;
  }

  void sample() {
    const double under_way = std::accumulate(under_way_.begin(), under_way_.end(), 0.0);
    double sum = under_way;
    for (std::size_t worker = 0; worker < held_.size(); ++worker) sum += held_by(static_cast<int>(worker));
    ++samples_;
    if (under_way > 0) ++samples_with_some_under_way_;
    largest_error_ = std::max(largest_error_, std::abs(sum - 1));
  }

  int samples() const { return samples_; }
  int samples_with_some_under_way() const { return samples_with_some_under_way_; }
  double largest_error() const { return largest_error_; }

 private:
  std::vector<double> held_;
  std::vector<Strategy*> strategies_;
  std::vector<double> under_way_;  // By receiver.
  int samples_ = 0;
  int samples_with_some_under_way_ = 0;
  double largest_error_ = 0;
};

// Passes everything on; looks at all α before every call that could let another rank run.
class SamplingEndpoint final : public fabric::Endpoint {
 public:
  SamplingEndpoint(fabric::Endpoint& endpoint, Alphas& alphas) : endpoint_(endpoint), alphas_(alphas) {}

  fabric::Rank rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  Time now() const override { return endpoint_.now(); }
  void sleep(Duration duration) override {
    alphas_.sample();
    endpoint_.sleep(duration);
  }
  void compute(double units, FunctionRef<void()> work) override {
    alphas_.sample();
    endpoint_.compute(units, work);
  }
  void pass(std::string_view point) override {
    alphas_.sample();
    endpoint_.pass(point);
  }
  Status send(fabric::Rank to, fabric::Tag tag, fabric::Payload payload, fabric::Deadline deadline) override {
    const double alpha = alpha_of(payload);
    alphas_.sent(to, alpha);
    alphas_.sample();
    Status status = endpoint_.send(to, tag, std::move(payload), deadline);
    if (!status) alphas_.arrived(to, alpha);
    return status;
  }
  Result<fabric::Message> receive(const fabric::Filter& filter, fabric::Deadline deadline) override {
    alphas_.sample();
    Result<fabric::Message> message = endpoint_.receive(filter, deadline);
    if (message) alphas_.arrived(rank(), alpha_of(message->payload));
    return message;
  }
  std::optional<fabric::Message> poll(const fabric::Filter& filter) override {
    alphas_.sample();
    std::optional<fabric::Message> message = endpoint_.poll(filter);
    if (message) alphas_.arrived(rank(), alpha_of(message->payload));
    return message;
  }
  Result<std::shared_ptr<fabric::Window>> open_window(std::string_view name, std::size_t size, fabric::Rank home,
                                                      fabric::Deadline deadline) override {
    return endpoint_.open_window(name, size, home, deadline);
  }
  fabric::PeerState peer(fabric::Rank rank) const override { return endpoint_.peer(rank); }
  std::vector<fabric::Departure> departures() const override { return endpoint_.departures(); }
  fabric::Traffic traffic() const override { return endpoint_.traffic(); }
  RandomStream random(std::string_view purpose) const override { return endpoint_.random(purpose); }

 private:
  // Of a model; everything else has none.
  static double alpha_of(const fabric::Payload& payload) {
    tensor::Header header;
    if (payload.bytes().empty() || tensor::read_head(payload, header)) return 0;
    return header.stamp.value;
  }

  fabric::Endpoint& endpoint_;
  Alphas& alphas_;
};

struct GossipTrial {
  std::string strategy{};
  std::map<std::string, std::string> settings{};
  int workers = 2;
  int steps = 20;
  int finishes_after = 0;  // Also after so many steps, if not 0.
  double lr = 0;
  std::uint64_t seed = 1;
  std::function<void(fabric::SimOptions&)> adjust{};
};

struct GossipOutcome {
  std::string failures{};
  std::vector<std::vector<float>> weights{};  // By worker, at the end; empty of one that was lost.
  std::vector<double> alphas{};
  std::vector<Time> trained{};  // When a worker had made its steps.
  Alphas record{1};
  ledger::Balance balance{};
};

// Different on every worker, so that mixing shows.
std::vector<float> first_weights(int worker) {
  std::vector<float> weights(kWeights);
  for (std::size_t i = 0; i < kWeights; ++i) weights[i] = static_cast<float>((3 * worker + 5 * static_cast<int>(i)) % 11) - 4;
  return weights;
}

// Speeds that differ by up to a factor of ten, links that are now fast and now slow, pauses before pushes, and queues of few messages.
fabric::SimOptions random_options(const GossipTrial& trial) {
  RandomStream random(trial.seed, 0, "gossip schedule");
  fabric::SimOptions sim;
  sim.ranks = trial.workers;
  sim.seed = trial.seed;
  sim.timeout = 20s;
  sim.queue_messages = 1 + static_cast<std::size_t>(random.below(4));
  for (int rank = 0; rank < sim.ranks; ++rank) sim.speeds.push_back({.ranks = fabric::RankSet{rank}, .factor = 0.1 + random.uniform()});
  sim.compute.time_per_unit = Distribution::lognormal(1ms, from_seconds(0.002 * random.uniform()));
  sim.network.link.latency = from_seconds(0.01 * random.uniform());
  sim.network.link.jitter = Distribution::exponential(from_seconds(0.004 * random.uniform()));
  const int late = static_cast<int>(random.below(static_cast<std::uint64_t>(sim.ranks)));
  sim.delays = {{.point = "push", .ranks = fabric::RankSet{late}, .time = Distribution::exponential(3ms)}};
  if (trial.adjust) trial.adjust(sim);
  return sim;
}

// Keeps what a worker held when it ends, in whatever way.
class Attached {
 public:
  Attached(Alphas& alphas, int worker, Strategy* strategy) : alphas_(alphas), worker_(worker) { alphas_.attach(worker_, strategy); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  ~Attached() { alphas_.detach(worker_); }

 private:
  Alphas& alphas_;
  int worker_;
};

GossipOutcome run_gossip(const GossipTrial& trial, const std::vector<int>& lost = {}) {
  const Registry registry = Registry::built_in();
  const Description& description = registry.find(trial.strategy);
  Settings settings(description.name, description.options);
  for (const auto& [name, value] : trial.settings) settings.set(name, value);
  const Roles roles{.workers = trial.workers};
  params::Layout layout;
  layout.add("weights", {static_cast<std::int64_t>(kWeights)});
  ledger::Ledger ledger(trial.workers, trial.workers, place_ranks(description.places, roles));
  const auto workers = static_cast<std::size_t>(trial.workers);
  GossipOutcome outcome{.weights = std::vector<std::vector<float>>(workers), .trained = std::vector<Time>(workers)};
  outcome.record = Alphas(trial.workers);
  fabric::SimFabric fabric(random_options(trial));
  const fabric::RunReport report = fabric.run([&](fabric::Endpoint& raw) -> Status {
    SamplingEndpoint endpoint(raw, outcome.record);
    const auto index = static_cast<std::size_t>(raw.rank());
    const std::unique_ptr<Strategy> strategy = description.make({.endpoint = endpoint,
                                                                 .roles = roles,
                                                                 .layout = layout,
                                                                 .settings = settings,
                                                                 .account = ledger.account(raw.rank()),
                                                                 .optimiser = default_optimiser(),
                                                                 .seed = trial.seed});
    const Attached attached(outcome.record, raw.rank(), strategy.get());
    std::vector<float> weights = first_weights(raw.rank());
    std::vector<float> model = weights;
    STARLING_TRY(strategy->start(weights, model));
    for (int step = 1; step <= trial.steps; ++step) {
      STARLING_TRY(strategy->prepare(weights));
      std::vector<float> gradient;
      endpoint.compute(1, [&] { gradient = weights; });
      STARLING_TRY(strategy->exchange(
          {.weights = weights, .gradient = gradient, .number = static_cast<std::uint64_t>(step), .lr = trial.lr, .samples = 1}));
      if (step == trial.finishes_after) STARLING_TRY(strategy->finish(weights, model));
    }
    outcome.trained[index] = endpoint.now();
    STARLING_TRY(strategy->finish(weights, model));
    outcome.weights[index] = model;
    return {};
  });
  outcome.failures = report.summary();
  for (int worker = 0; worker < trial.workers; ++worker) outcome.alphas.push_back(outcome.record.held_by(worker));
  outcome.balance = ledger.close(lost);
  return outcome;
}

// The mean of all weights, by component; of gosgd by α.
std::vector<double> mean_of(const std::vector<std::vector<float>>& weights, const std::vector<double>& shares) {
  std::vector<double> mean(kWeights);
  for (std::size_t worker = 0; worker < weights.size(); ++worker) {
    for (std::size_t i = 0; i < kWeights; ++i) mean[i] += shares[worker] * static_cast<double>(weights[worker][i]);
  }
  return mean;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

double spread(const std::vector<std::vector<float>>& weights) {
  double largest = 0;
  for (const std::vector<float>& one : weights) {
    for (std::size_t i = 0; i < kWeights; ++i) largest = std::max(largest, static_cast<double>(std::abs(one[i] - weights[0][i])));
  }
  return largest;
}

std::vector<std::vector<float>> all_first_weights(int workers) {
  std::vector<std::vector<float>> result;
  for (int worker = 0; worker < workers; ++worker) result.push_back(first_weights(worker));
  return result;
}

std::vector<double> equal_shares(int workers) { return std::vector<double>(static_cast<std::size_t>(workers), 1.0 / workers); }

GossipTrial random_trial(const std::string& strategy, int workers, std::uint64_t seed) {
  RandomStream random(seed, 0, "gossip trial");
  GossipTrial trial{.strategy = strategy, .workers = workers, .seed = seed};
  trial.steps = 10 + static_cast<int>(random.below(20));
  trial.finishes_after = static_cast<int>(random.below(10));
  if (strategy == "gosgd") {
    trial.settings["probability"] = std::to_string(0.1 + 0.9 * random.uniform());
    if (random.below(3) == 0) trial.settings["topology"] = "ring";
  } else if (workers % 2 == 0 && random.below(3) == 0) {
    trial.settings["topology"] = "ring";
  }
  return trial;
}

std::string describe(const GossipTrial& trial) {
  return fmt::format("{} with {} workers, seed {}", trial.strategy, trial.workers, trial.seed);
}

TEST(GossipProperty, TheWeightsOfGosgdAddUpToOneAtEveryMoment) {
  int samples_with_some_under_way = 0;
  std::uint64_t without_room = 0;
  for (const int workers : kWorkerCounts) {
    for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
      GossipTrial trial = random_trial("gosgd", workers, seed);
      trial.lr = 0.1;
      const GossipOutcome outcome = run_gossip(trial);
      ASSERT_EQ(outcome.failures, "") << describe(trial);
      ASSERT_LT(outcome.record.largest_error(), 1e-12) << describe(trial);
      for (int worker = 0; worker < workers; ++worker) {
        ASSERT_LT(std::abs(outcome.record.under_way_to(worker)), 1e-12) << describe(trial) << ": models are under way after the end";
      }
      ASSERT_TRUE(outcome.balance.balanced) << describe(trial) << "\n" << to_text(outcome.balance);
      samples_with_some_under_way += outcome.record.samples_with_some_under_way();
      for (const auto& [reason, count] : outcome.balance.dropped) {
        ASSERT_EQ(reason, ledger::kNoRoom) << describe(trial);
        without_room += count;
      }
    }
  }
  EXPECT_GT(samples_with_some_under_way, 10'000) << "hardly anything was under way, so this shows little";
  EXPECT_GT(without_room, 100U) << "there was always room, so this shows little";
}

TEST(GossipProperty, MixingAloneMovesNoMean) {
  for (const char* strategy : {"gosgd", "ad-psgd"}) {
    double mixed = 0;
    for (const int workers : kWorkerCounts) {
      const std::vector<double> before = mean_of(all_first_weights(workers), equal_shares(workers));
      for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
        const GossipTrial trial = random_trial(strategy, workers, seed);
        const GossipOutcome outcome = run_gossip(trial);
        ASSERT_EQ(outcome.failures, "") << describe(trial);
        const std::vector<double> shares = trial.strategy == "gosgd" ? outcome.alphas : equal_shares(workers);
        ASSERT_LT(largest_difference(mean_of(outcome.weights, shares), before), 1e-5) << describe(trial);
        ASSERT_TRUE(outcome.balance.balanced) << describe(trial) << "\n" << to_text(outcome.balance);
        if (workers > 1) mixed += spread(outcome.weights) < 0.5 * spread(all_first_weights(workers)) ? 1 : 0;
      }
    }
    EXPECT_GT(mixed, 0.6 * 4 * static_cast<double>(kSchedules)) << strategy << " hardly mixes, so this shows little";
  }
}

// Active workers wait for passive ones alone, and these for nobody: so all finish, whatever the speeds.
TEST(GossipProperty, AdPsgdNeverDeadlocks) {
  for (const int workers : kWorkerCounts) {
    for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
      GossipTrial trial = random_trial("ad-psgd", workers, seed);
      trial.lr = 0.1;
      const GossipOutcome outcome = run_gossip(trial);
      ASSERT_EQ(outcome.failures, "") << describe(trial);
      ASSERT_TRUE(outcome.balance.balanced) << describe(trial) << "\n" << to_text(outcome.balance);
      ASSERT_TRUE(outcome.balance.dropped.empty()) << describe(trial);
      const auto active = static_cast<std::uint64_t>(workers == 1 ? 0 : (workers + 1) / 2);
      ASSERT_EQ(outcome.balance.produced, active * static_cast<std::uint64_t>(trial.steps)) << describe(trial);
    }
  }
}

// A slow worker holds up nobody in gosgd, although the queue to it is soon full.
TEST(GossipProperty, NobodyWaitsInGosgd) {
  GossipTrial trial{.strategy = "gosgd", .settings = {{"probability", "1"}}, .workers = 4, .steps = 50};
  trial.adjust = [](fabric::SimOptions& sim) {
    sim.queue_messages = 2;
    sim.speeds = {{.ranks = fabric::RankSet{2}, .factor = 0.01}};
    sim.compute.time_per_unit = Distribution::constant(1ms);
    sim.network.link = {};
    sim.delays.clear();
  };
  const GossipOutcome outcome = run_gossip(trial);
  ASSERT_EQ(outcome.failures, "");
  for (const std::size_t fast : {0U, 1U, 3U}) {
    EXPECT_GE(outcome.trained[fast], 50ms);
    EXPECT_LT(outcome.trained[fast], 51ms) << "worker " << fast;
  }
  EXPECT_GT(outcome.balance.dropped.at(ledger::kNoRoom), 10U);
  EXPECT_LT(outcome.record.largest_error(), 1e-12);
}

// What a lost worker held, and what was under way to it, is gone; all else still adds up.
TEST(GossipProperty, OnlyWhatALostWorkerHeldIsGone) {
  int lost_some = 0;
  for (const char* strategy : {"gosgd", "ad-psgd"}) {
    for (const int workers : {2, 3, 5, 8}) {
      for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
        GossipTrial trial = random_trial(strategy, workers, seed);
        RandomStream random(seed, 0, "gossip crash");
        const int lost = static_cast<int>(random.below(static_cast<std::uint64_t>(workers)));
        const Duration time = from_seconds(0.03 * random.uniform());
        trial.adjust = [&](fabric::SimOptions& sim) {
          sim.faults.crashes = {{.rank = lost, .time = time}};
          sim.faults.detection = from_seconds(0.01 * random.uniform());
        };
        const GossipOutcome outcome = run_gossip(trial, {lost});
        SCOPED_TRACE(fmt::format("{}, rank {} lost at {}", describe(trial), lost, format_duration(time)));
        for (int worker = 0; worker < workers; ++worker) {
          if (worker == lost) continue;
          ASSERT_EQ(outcome.weights[static_cast<std::size_t>(worker)].size(), kWeights) << outcome.failures;
        }
        ASSERT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
        if (trial.strategy != "gosgd") continue;
        // The lost worker's own is still on record, and so is what was under way to it.
        ASSERT_LT(outcome.record.largest_error(), 1e-12);
        for (int worker = 0; worker < workers; ++worker) {
          if (worker == lost) continue;
          ASSERT_LT(std::abs(outcome.record.under_way_to(worker)), 1e-12) << "what was sent to worker " << worker << " was not mixed in";
        }
        lost_some += outcome.failures.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(lost_some, 100) << "hardly anybody was lost, so this shows little";
}

// Worker 0 is through and hears that the other is lost, whose models are still on their way: they count all the same.
TEST(GossipProperty, WhatALostWorkerHadSentIsMixedIn) {
  GossipTrial trial{.strategy = "gosgd", .settings = {{"probability", "1"}}, .workers = 2, .steps = 5};
  trial.adjust = [](fabric::SimOptions& sim) {
    sim.queue_messages = 64;
    sim.speeds = {{.ranks = fabric::RankSet{1}, .factor = 0.2}};
    sim.compute.time_per_unit = Distribution::constant(1ms);
    sim.network.link = {.latency = 50ms};
    sim.delays.clear();
    sim.faults.crashes = {{.rank = 1, .time = 18ms}};
  };
  const GossipOutcome outcome = run_gossip(trial, {1});
  // Worker 1 has pushed three times, and kept an eighth of its half.
  EXPECT_LT(std::abs(outcome.record.under_way_to(0)), 1e-12);
  EXPECT_NEAR(outcome.alphas[1], 0.0625, 1e-12);
  EXPECT_NEAR(outcome.alphas[0], 0.5 / 32 + 0.4375, 1e-12);
  EXPECT_EQ(outcome.balance.applied, 3U);
  EXPECT_EQ(outcome.balance.dropped, (std::map<std::string, std::uint64_t>{{ledger::kReceiverLost, 5}}));
  EXPECT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
}

}  // namespace
}  // namespace starling::strategy
