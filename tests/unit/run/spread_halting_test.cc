// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/spread_halting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;
using fabric::Rank;

constexpr std::uint64_t kSteps = 10'000;

fabric::SimOptions options(int ranks) {
  fabric::SimOptions result;
  result.ranks = ranks;
  return result;
}

std::vector<Rank> ranks_below(int end) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

// Steps until it may not begin one; `wants` is asked before each. Returns the step that was not begun.
template <class Wants>
Result<std::uint64_t> steps_until_halt(Endpoint& endpoint, Signals& signals, SpreadHalting& halting, Duration step_time, Wants wants) {
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    signals.look();
    if (wants(step)) halting.halt();
    Result<bool> may = halting.may_begin(step);
    if (!may) return may.failure();
    if (!*may) return step;
    endpoint.sleep(step_time);
  }
  return kSteps + 1;
}

// Workers of different speed, whoever of them wants it, whenever: all halt before the same step, soon after.
TEST(SpreadHalting, ThoseInStepHaltBeforeTheSameStep) {
  for (const int ranks : {2, 3, 8}) {
    for (const std::uint64_t wanted_at : {1, 2, 3, 57, 400}) {
      std::vector<std::uint64_t> halted(static_cast<std::size_t>(ranks));
      Time wanted_time = Time::zero();
      Time halted_time = Time::zero();
      fabric::SimFabric fabric(options(ranks));
      const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
        Signals signals(endpoint);
        SpreadHalting halting(endpoint, signals, ranks_below(ranks), {}, 1);
        const auto wants = [&](std::uint64_t step) {
          if (endpoint.rank() != ranks - 1 || step != wanted_at) return false;
          wanted_time = endpoint.now();
          return true;
        };
        // In step with each other, as their strategy keeps them: the time of a step is that of the slowest.
        Result<std::uint64_t> step = steps_until_halt(endpoint, signals, halting, 2ms, wants);
        if (!step) return step.failure();
        halted[static_cast<std::size_t>(endpoint.rank())] = *step;
        halted_time = std::max(halted_time, endpoint.now());
        return {};
      });
      EXPECT_EQ(report.summary(), "");
      EXPECT_EQ(std::set<std::uint64_t>(halted.begin(), halted.end()).size(), 1U) << ranks << " ranks, wanted at " << wanted_at;
      EXPECT_GE(halted[0], wanted_at);
      EXPECT_LT(halted_time - wanted_time, 500ms) << ranks << " ranks, wanted at " << wanted_at;
    }
  }
}

TEST(SpreadHalting, TheyAskEachOtherSeldom) {
  fabric::SimFabric fabric(options(2));
  std::uint64_t messages = 0;
  const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    SpreadHalting halting(endpoint, signals, ranks_below(2), {}, 1);
    Result<std::uint64_t> step = steps_until_halt(endpoint, signals, halting, 1ms, [](std::uint64_t number) { return number == 5000; });
    if (!step) return step.failure();
    messages = endpoint.traffic().messages_sent;
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_GE(messages, 5U);    // Five seconds: about ten times a second, with a message or two each,
  EXPECT_LE(messages, 500U);  // and not at every step.
}

TEST(SpreadHalting, WhoIsNotInStepHaltsWhereItStands) {
  constexpr int kRanks = 4;
  std::vector<std::uint64_t> halted(kRanks);
  fabric::SimFabric fabric(options(kRanks));
  const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    std::vector<Rank> others;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (rank != endpoint.rank()) others.push_back(rank);
    }
    SpreadHalting halting(endpoint, signals, {endpoint.rank()}, others, 1);
    const auto wants = [&](std::uint64_t step) { return endpoint.rank() == 1 && step == 100; };
    Result<std::uint64_t> step = steps_until_halt(endpoint, signals, halting, (endpoint.rank() + 1) * 1ms, wants);
    if (!step) return step.failure();
    halted[static_cast<std::size_t>(endpoint.rank())] = *step;
    endpoint.sleep(1s);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_EQ(halted[1], 100U);
  EXPECT_NEAR(static_cast<double>(halted[0]), 199, 3);  // Twice as fast,
  EXPECT_NEAR(static_cast<double>(halted[3]), 51, 3);   // and half as fast.
}

TEST(SpreadHalting, ANewStretchBeginsUnhalted) {
  fabric::SimFabric fabric(options(2));
  const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    SpreadHalting halting(endpoint, signals, ranks_below(2), {}, 1);
    for (const std::uint64_t wanted_at : {40, 3, 70}) {
      const auto wants = [&](std::uint64_t step) { return endpoint.rank() == 0 && step == wanted_at; };
      Result<std::uint64_t> step = steps_until_halt(endpoint, signals, halting, 1ms, wants);
      if (!step) return step.failure();
      EXPECT_GE(*step, wanted_at);
      EXPECT_LT(*step, wanted_at + 300);
      Result<bool> again = halting.may_begin(*step + 1);
      if (!again) return again.failure();
      EXPECT_FALSE(*again);
      STARLING_TRY(collective::barrier(endpoint, fabric::Group::world(2)));
      halting.open();
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

}  // namespace
}  // namespace starling::run
