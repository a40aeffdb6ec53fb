// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What Hogwild! promises beyond its reference: rows that an update does not touch are not written, and no addition is lost, under any
// schedule of the simulator and under real races. Gradients here are multiples of 1/8 that do not depend on the weights, so all sums are
// exact, in any order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "contract/strategy_harness.h"
#include "starling/base/random.h"

namespace starling::strategy {
namespace {

using namespace std::chrono_literals;
using Additions = std::vector<Recorder::Addition>;

// Of trial_layout(): a matrix of 4 rows of 3, then 5 biases.
constexpr std::size_t kRows = 4;
constexpr std::size_t kColumns = 3;
constexpr std::size_t kBiases = kRows * kColumns;
constexpr std::size_t kFloats = kBiases + 5;

std::vector<float> gradient_in(const std::vector<std::size_t>& rows, bool with_biases, float value) {
  std::vector<float> gradient(kFloats);
  for (const std::size_t row : rows) std::fill_n(gradient.begin() + static_cast<std::ptrdiff_t>(row * kColumns), kColumns, value);
  if (with_biases) gradient.back() = value;  // One of them is enough for all five.
  return gradient;
}

Trial plain_trial(int workers, int steps) {
  Trial trial{.strategy = "hogwild", .settings = {{"staleness_lr", "none"}}, .workers = workers, .steps = steps};
  return trial;
}

Additions of_worker(const Outcome& outcome, int worker) {
  Additions additions;
  std::copy_if(outcome.additions.begin(), outcome.additions.end(), std::back_inserter(additions),
               [=](const Recorder::Addition& addition) { return addition.worker == worker; });
  return additions;
}

TEST(Hogwild, RowsThatAreNotTouchedAreNotWritten) {
  for (const char* fabric : {"sim", "threads"}) {
    SCOPED_TRACE(fabric);
    Trial trial = plain_trial(2, 4);
    trial.fabric = fabric;
    trial.gradient = [](int worker, int step, const std::vector<float>&) {
      if (worker == 1) return std::vector<float>(kFloats);
      if (step == 1) return gradient_in({1}, false, 1);
      if (step == 2) return gradient_in({0, 2, 3}, false, 1);
      if (step == 3) return gradient_in({3}, true, 1);
      return gradient_in({0, 1, 2, 3}, true, 1);
    };
    const Outcome outcome = run_trial(trial);
    ASSERT_EQ(outcome.failures, "");
    // Neighbours are written in one, also across slices.
    EXPECT_EQ(of_worker(outcome, 0), (Additions{{0, 3, 3}, {0, 0, 3}, {0, 6, 6}, {0, 9, 8}, {0, 0, 17}}));
    EXPECT_TRUE(of_worker(outcome, 1).empty()) << "an update of zeros is nothing to write";
    EXPECT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
    EXPECT_EQ(outcome.balance.applied, 8U) << "it is applied all the same";
  }
}

// The optimiser decides what is touched: a velocity goes on where the gradient is 0, and weight decay touches everything.
TEST(Hogwild, WhatIsTouchedIsTheUpdateNotTheGradient) {
  Trial trial = plain_trial(1, 2);
  trial.gradient = [](int, int step, const std::vector<float>&) {
    return step == 1 ? gradient_in({1}, false, 1) : gradient_in({3}, false, 1);
  };
  trial.optimiser = {.name = "momentum", .momentum = 0.5};
  EXPECT_EQ(run_trial(trial).additions, (Additions{{0, 3, 3}, {0, 3, 3}, {0, 9, 3}}));
  trial.settings["momentum"] = "none";
  EXPECT_EQ(run_trial(trial).additions, (Additions{{0, 3, 3}, {0, 9, 3}}));
  trial.optimiser.weight_decay = 0.5;
  EXPECT_EQ(run_trial(trial).additions, (Additions{{0, 0, 17}, {0, 0, 17}}));
}

// In memory each worker begins at another place, and comes round to it. The model is large enough for that to matter.
params::Layout wide_layout() {
  params::Layout layout;
  layout.add("matrix", {40, 5});
  layout.add("bias", {100});
  return layout;
}

TEST(Hogwild, InMemoryEveryWorkerBeginsElsewhereAndWritesEverythingOnce) {
  Trial trial = plain_trial(3, 1);
  trial.fabric = "threads";
  trial.shows_memory = true;
  trial.layout = wide_layout();
  trial.gradient = [](int, int, const std::vector<float>& weights) { return std::vector<float>(weights.size(), 1); };
  const Outcome outcome = run_trial(trial);
  ASSERT_EQ(outcome.failures, "");
  EXPECT_EQ(of_worker(outcome, 0), (Additions{{0, 0, 300}}));
  EXPECT_EQ(of_worker(outcome, 1), (Additions{{1, 96, 204}, {1, 0, 96}}));
  EXPECT_EQ(of_worker(outcome, 2), (Additions{{2, 192, 108}, {2, 0, 192}}));
  // A range that ends before the place is written in the second round, one that contains it in both.
  trial.gradient = [](int, int, const std::vector<float>& weights) {
    std::vector<float> gradient(weights.size());
    gradient[0] = 1;
    std::fill(gradient.begin() + 90, gradient.begin() + 105, 1.0F);
    return gradient;
  };
  EXPECT_EQ(of_worker(run_trial(trial), 1), (Additions{{1, 96, 9}, {1, 0, 5}, {1, 90, 6}}));
}

// What every worker takes off, whenever it comes to it: some rows, with a value of worker and step.
std::vector<float> exact_gradient(int worker, int step, std::size_t size) {
  std::vector<float> gradient(size);
  for (std::size_t i = 0; i < size; ++i) {
    const int mixed = 7 * worker + 5 * step + 3 * static_cast<int>(i / kColumns);
    gradient[i] = mixed % 3 == 0 ? 0.0F : static_cast<float>(mixed % 8 + 1) / 8;
  }
  return gradient;
}

std::vector<float> exact_result(const Trial& trial) {
  std::vector<float> weights = trial_weights(trial.layout);
  for (int worker = 0; worker < trial.workers; ++worker) {
    for (int step = 1; step <= trial.steps; ++step) {
      const std::vector<float> gradient = exact_gradient(worker, step, weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= static_cast<float>(trial.lr) * gradient[i];
    }
  }
  return weights;
}

void expect_nothing_lost(Trial trial) {
  trial.gradient = [](int worker, int step, const std::vector<float>& weights) { return exact_gradient(worker, step, weights.size()); };
  const Outcome outcome = run_trial(trial);
  ASSERT_EQ(outcome.failures, "");
  const std::vector<float> expected = exact_result(trial);
  for (const std::vector<float>& model : outcome.models) EXPECT_EQ(model, expected);
  EXPECT_TRUE(outcome.balance.balanced) << to_text(outcome.balance);
  EXPECT_EQ(outcome.balance.applied, static_cast<std::uint64_t>(trial.workers) * static_cast<std::uint64_t>(trial.steps));
}

TEST(Hogwild, NoAdditionIsLostUnderAnySchedule) {
  constexpr std::uint64_t kSchedules = 200;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomStream random(seed, 0, "hogwild schedule");
    Trial trial = plain_trial(2 + static_cast<int>(random.below(5)), 3 + static_cast<int>(random.below(8)));
    trial.seed = seed;
    trial.adjust = [&](fabric::SimOptions& sim) {
      sim.network.link.latency = from_seconds(0.001 * random.uniform());
      sim.network.link.jitter = Distribution::exponential(from_seconds(0.004 * random.uniform()));
      sim.delays = {{.point = "push", .ranks = fabric::RankSet{0}, .time = Distribution::exponential(3ms)}};
    };
    expect_nothing_lost(trial);
  }
}

// Real races: all workers in the same few cache lines all the time.
TEST(Hogwild, NoAdditionIsLostOnThreads) {
  for (const int workers : {2, 4, 8}) {
    SCOPED_TRACE(fmt::format("{} workers", workers));
    Trial trial = plain_trial(workers, 400);
    trial.fabric = "threads";
    trial.shows_memory = true;
    expect_nothing_lost(trial);
    trial.layout = wide_layout();
    expect_nothing_lost(trial);
  }
}

}  // namespace
}  // namespace starling::strategy
