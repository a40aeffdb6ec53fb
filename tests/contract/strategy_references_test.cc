// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The references by themselves: by hand on a single weight, and where one method becomes another.
#include "contract/strategy_references.h"

#include <gtest/gtest.h>

#include <numeric>

#include "starling/base/error.h"

namespace starling::strategy::reference {
namespace {

constexpr Kind kPush = Kind::push;
constexpr Kind kPull = Kind::pull;

// g = w + worker + step / 8, so that everything matters.
std::vector<float> gradient(int worker, int step, const std::vector<float>& weights) {
  std::vector<float> result = weights;
  for (float& value : result) value += static_cast<float>(worker) + static_cast<float>(step) / 8;
  return result;
}

// g = w: easy to follow by hand.
std::vector<float> weight_itself(int, int, const std::vector<float>& weights) { return weights; }

Schedule schedule_of(int workers, int steps, double momentum) {
  return {.workers = workers,
          .steps = steps,
          .weights = {1, -2, 0.5F},
          .gradient = gradient,
          .lr = 0.1,
          .momentum = momentum,
          .order = in_turn(workers, steps, {kPush, kPull})};
}

Schedule by_hand(int workers, int steps, std::vector<Event> order) {
  return {.workers = workers, .steps = steps, .weights = {1}, .gradient = weight_itself, .lr = 0.5, .order = std::move(order)};
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
}

// One worker, the loop that everybody knows.
std::vector<float> plain(const Schedule& schedule) {
  std::vector<float> weights = schedule.weights;
  std::vector<float> velocity(weights.size());
  for (int step = 1; step <= schedule.steps; ++step) {
    const std::vector<float> g = schedule.gradient(0, step, weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      velocity[i] = static_cast<float>(schedule.momentum) * velocity[i] + g[i];
      weights[i] -= static_cast<float>(schedule.lr) * velocity[i];
    }
  }
  return weights;
}

TEST(StrategyReference, OneWorkerIsPlainTraining) {
  for (const double momentum : {0.0, 0.9}) {
    SCOPED_TRACE(momentum);
    const Schedule schedule = schedule_of(1, 6, momentum);
    const std::vector<float> expected = plain(schedule);
    expect_near(sync(schedule).model, expected);
    expect_near(local_sgd(schedule, 2).model, expected);
    expect_near(ssp(schedule, 0).model, expected);
    expect_near(async(schedule).model, expected);
    expect_near(downpour(schedule, 1, 1).model, expected);
    expect_near(agn(schedule, 1).model, expected);
    expect_near(dc_asgd(schedule, {.lambda = 2}).model, expected);
    Schedule shared = schedule;
    shared.order = in_turn(1, 6, {Kind::read, Kind::number, Kind::add});
    expect_near(hogwild(shared).model, expected);
    expect_near(fedavg(schedule, {.local_steps = 6, .samples = {5}, .clients = {{0}}}).model, expected);
    Schedule elastic = schedule;
    elastic.order.clear();
    expect_near(easgd(elastic, 0, 1).replicas[0], expected);
  }
}

TEST(StrategyReference, MethodsMeetWhereTheyShould) {
  for (const int workers : {1, 2, 3, 5}) {
    SCOPED_TRACE(workers);
    const Schedule moving = schedule_of(workers, 4, 0.9);
    const Schedule still = schedule_of(workers, 4, 0);
    std::vector<int> all(static_cast<std::size_t>(workers));
    std::iota(all.begin(), all.end(), 0);
    const FedAvgOptions everyone{.local_steps = 1, .samples = std::vector<double>(all.size(), 7), .clients = {all, all, all, all}};
    expect_near(local_sgd(still, 1).model, sync(still).model);
    expect_near(fedavg(still, everyone).model, sync(still).model);
    expect_near(dc_asgd(moving, {.lambda = 0}).model, async(moving).model);
    expect_near(downpour(still, 1, 1).model, async(still).model);
    expect_near(agn(still, 1).model, async(still).model);
    // A worker that adds at once to what it has read is one after another, on shared weights or on a server.
    Schedule shared = still;
    shared.order = in_turn(workers, 4, {Kind::read, Kind::number, Kind::add});
    Schedule served = still;
    served.order = in_turn(workers, 4, {kPull, kPush});
    expect_near(hogwild(shared).model, async(served).model);
    // Bound 0: all push, then all pull.
    Schedule lockstep = moving;
    lockstep.order.clear();
    for (int step = 0; step < 4; ++step) {
      for (const Kind kind : {kPush, kPull}) {
        for (const int worker : all) lockstep.order.push_back({worker, kind});
      }
    }
    expect_near(ssp(lockstep, 0).model, sync(moving).model);
    expect_near(ssp(lockstep, 0).replicas.back(), sync(moving).model);
    // One group of all without a centre is synchronous; groups of one whose reads and additions are not torn apart are the locked form.
    Schedule wild = moving;
    wild.order = in_turn(1, 4, {Kind::read, Kind::add});
    expect_near(ea_wild(wild, {.alpha = 0, .group_size = workers}).replicas.back(), sync(moving).model);
    wild.order = in_turn(workers, 2, {Kind::read, Kind::add});
    Schedule locked = moving;
    locked.order.clear();
    expect_near(ea_wild(wild, {.alpha = 0.3, .period = 2}).model, easgd(locked, 0.3, 2).model);
    expect_near(ea_wild(wild, {.alpha = 0.3, .period = 2, .nesterov = true}).model, ea_msgd(locked, 0.3, 2).model);
    locked.momentum = 0;
    expect_near(ea_msgd(locked, 0.3, 1).model, easgd(locked, 0.3, 1).model);
  }
}

// All by hand: one weight that starts at 1, g = w, lr 1/2.
TEST(StrategyReference, AsyncByHand) {
  // a: 1 - 0.5. b computed on 1 as well: 0.5 - 0.5.
  EXPECT_EQ(async(by_hand(2, 1, {{0, kPush}, {1, kPush}})).model, (std::vector<float>{0}));
  // b pulls what a has left: 0.5 - 0.25.
  EXPECT_EQ(async(by_hand(2, 1, {{0, kPush}, {1, kPull}, {1, kPush}})).model, (std::vector<float>{0.25F}));
  Schedule damped = by_hand(2, 1, {{0, kPush}, {1, kPush}});
  damped.damping = Damping::by_staleness_plus_one;
  EXPECT_EQ(async(damped).model, (std::vector<float>{0.25F}));  // Half of b.
  damped.damping = Damping::by_staleness;
  EXPECT_EQ(async(damped).model, (std::vector<float>{0}));
}

TEST(StrategyReference, AsyncMomentumByHand) {
  Schedule schedule = by_hand(2, 1, {{0, kPush}, {1, kPush}});
  schedule.momentum = 0.5;
  // v = 1, w = 0.5; v = 0.5 + 1, w = 0.5 - 0.75.
  EXPECT_EQ(async(schedule).model, (std::vector<float>{-0.25F}));
}

TEST(StrategyReference, LocalSgdByHand) {
  // Worker 1 stays where it is. 0: 1 → 0.5 → 0.25; the mean with 1 is 0.625; then 0.3125.
  Schedule schedule = by_hand(2, 3, {});
  schedule.gradient = [](int worker, int, const std::vector<float>& weights) { return worker == 0 ? weights : std::vector<float>{0}; };
  const Result result = local_sgd(schedule, 2);
  EXPECT_EQ(result.replicas, (std::vector<std::vector<float>>{{0.3125F}, {0.625F}}));
  EXPECT_EQ(result.model, (std::vector<float>{0.46875F}));
}

TEST(StrategyReference, SspByHandAndItsBound) {
  // Each update counts half: 1 - 0.25 - 0.25.
  EXPECT_EQ(ssp(by_hand(2, 1, {{0, kPush}, {1, kPush}}), 0).model, (std::vector<float>{0.5F}));
  const std::vector<Event> ahead{{0, kPush}, {0, kPull}, {0, kPush}, {1, kPush}, {1, kPull}, {1, kPush}};
  EXPECT_THROW(ssp(by_hand(2, 2, ahead), 0), BrokenInvariant);
  // 1 → 0.75 → (a on 0.75) 0.5625 → (b on 1) 0.3125 → (b on that) 0.234375.
  EXPECT_EQ(ssp(by_hand(2, 2, ahead), 1).model, (std::vector<float>{0.234375F}));
  // Without a pull everybody goes on from 0.75, which is its own update alone.
  const std::vector<Event> alone{{0, kPush}, {0, kPush}, {1, kPush}, {1, kPush}};
  EXPECT_EQ(ssp(by_hand(2, 2, alone), 1).model, (std::vector<float>{0.125F}));
}

TEST(StrategyReference, DownpourByHand) {
  // Pushes every 2, pulls every 3, 3 steps. Alone: 1, 0.5, 0.25; pushes -0.75: 0.25. Then 0.125; what is left is pushed last: 0.125.
  const std::vector<Event> order{{0, kPush}, {0, kPull}, {0, kPush}};
  EXPECT_EQ(downpour(by_hand(1, 3, order), 2, 3).model, (std::vector<float>{0.125F}));
  EXPECT_THROW(downpour(by_hand(1, 3, {{0, kPush}, {0, kPush}, {0, kPull}}), 2, 3), BrokenInvariant);
  // Two of them, both from 1: each takes 0.75 off; b goes on from the -0.5 that it pulls.
  const std::vector<Event> both{{0, kPush}, {1, kPush}, {1, kPull}, {1, kPush}, {0, kPull}, {0, kPush}};
  // b: -0.5 → -0.25 → -0.125, pushes +0.375: -0.125; a pulls that, pushes +0.09375.
  EXPECT_EQ(downpour(by_hand(2, 4, both), 2, 2).model, (std::vector<float>{-0.03125F}));
}

TEST(StrategyReference, AgnByHand) {
  // 1 → 0.5 → 0.25: a commit of -0.75 / 2. From 0.625 one step is left: -0.3125 / 1.
  EXPECT_EQ(agn(by_hand(1, 3, {{0, kPush}, {0, kPull}, {0, kPush}}), 2).model, (std::vector<float>{0.3125F}));
}

TEST(StrategyReference, DcAsgdByHand) {
  const Schedule schedule = by_hand(2, 1, {{0, kPush}, {1, kPush}});
  // b: g = 1, the server is at 0.5, b pulled 1: g' = 1 + 0.5 × 1 × (0.5 - 1) = 0.75; 0.5 - 0.375.
  EXPECT_EQ(dc_asgd(schedule, {.lambda = 0.5}).model, (std::vector<float>{0.125F}));
  // Adaptive: s = 0.05, then 0.0975; g' = 1 - 0.5 × 0.5 / √(0.0975 + 1e-7).
  const double compensated = 1 - 0.25 / 0.31225006;
  expect_near(dc_asgd(schedule, {.lambda = 0.5, .adaptive = true}).model, {static_cast<float>(0.5 - 0.5 * compensated)});
}

TEST(StrategyReference, FedAvgByHand) {
  // Client 0 alone: 1 → 0.5 → 0.25. Then both, with 1 and 3 samples; both come to 0.0625.
  Schedule schedule = by_hand(2, 4, {});
  EXPECT_EQ(fedavg(schedule, {.local_steps = 2, .samples = {1, 3}, .clients = {{0}, {0, 1}}}).model, (std::vector<float>{0.0625F}));
  schedule.steps = 1;
  schedule.gradient = [](int worker, int, const std::vector<float>&) { return std::vector<float>{static_cast<float>(worker)}; };
  EXPECT_EQ(fedavg(schedule, {.local_steps = 1, .samples = {1, 3}, .clients = {{0, 1}}}).model, (std::vector<float>{0.625F}));
}

TEST(StrategyReference, EasgdByHand) {
  // Step 1 by itself, nothing pulls: w = 0.5, the centre 1. Then d = 0.25 (0.5 - 1): w = 0.5 - 0.25 + 0.125, the centre 0.875.
  Result result = easgd(by_hand(1, 2, {}), 0.25, 2);
  EXPECT_EQ(result.replicas[0], (std::vector<float>{0.375F}));
  EXPECT_EQ(result.model, (std::vector<float>{0.875F}));
  // A third step, which 2 does not divide, is made after the last exchange.
  EXPECT_EQ(easgd(by_hand(1, 3, {}), 0.25, 2).replicas[0], (std::vector<float>{0.1875F}));
}

TEST(StrategyReference, EaMsgdByHand) {
  Schedule schedule = by_hand(1, 1, {});
  schedule.momentum = 0.5;
  EXPECT_EQ(ea_msgd(schedule, 0.25, 1).replicas[0], (std::vector<float>{0.25F}));  // v = 1; 1 - 0.5 (1 + 0.5).
}

TEST(StrategyReference, EaWildByHand) {
  // Step 1: w = 0.5 both. Step 2: both read the centre 1 before either adds: d = 0.25 (0.5 - 1) each, 1 - 0.125 - 0.125.
  const std::vector<Event> apart{{0, Kind::read}, {1, Kind::read}, {1, Kind::add}, {0, Kind::add}};
  EXPECT_EQ(ea_wild(by_hand(2, 2, apart), {.alpha = 0.25, .period = 2}).model, (std::vector<float>{0.75F}));
  // One after the other: the second sees 0.875: d = 0.25 (0.5 - 0.875).
  const std::vector<Event> together{{0, Kind::read}, {0, Kind::add}, {1, Kind::read}, {1, Kind::add}};
  EXPECT_EQ(ea_wild(by_hand(2, 2, together), {.alpha = 0.25, .period = 2}).model, (std::vector<float>{0.78125F}));
  EXPECT_THROW(ea_wild(by_hand(2, 2, {{0, Kind::add}}), {.alpha = 0.25, .period = 2}), BrokenInvariant);
}

TEST(StrategyReference, HogwildByHand) {
  constexpr Kind kRead = Kind::read;
  constexpr Kind kNumber = Kind::number;
  constexpr Kind kAdd = Kind::add;
  // Both read 1, and both take 0.5 off.
  const std::vector<Event> apart{{0, kRead}, {1, kRead}, {1, kNumber}, {1, kAdd}, {0, kNumber}, {0, kAdd}};
  EXPECT_EQ(hogwild(by_hand(2, 1, apart)).model, (std::vector<float>{0}));
  EXPECT_EQ(hogwild(by_hand(2, 1, apart)).replicas, (std::vector<std::vector<float>>{{0}, {0}}));
  // Worker 0 is the second: half of its step.
  Schedule damped = by_hand(2, 1, apart);
  damped.damping = Damping::by_staleness_plus_one;
  EXPECT_EQ(hogwild(damped).model, (std::vector<float>{0.25F}));
  // The order of the numbers counts, not that of the additions.
  damped.order = {{0, kRead}, {1, kRead}, {0, kNumber}, {1, kNumber}, {1, kAdd}, {0, kAdd}};
  damped.gradient = [](int worker, int, const std::vector<float>&) { return std::vector<float>{worker == 0 ? 1.0F : 0.5F}; };
  EXPECT_EQ(hogwild(damped).model, (std::vector<float>{0.375F}));  // 1 - 0.5 - 0.25 / 2.
  // A velocity of its own: v = 1, w = 0.5; v = 0.5 + 0.5, w = 0.
  Schedule moving = by_hand(1, 2, in_turn(1, 2, {kRead, kNumber, kAdd}));
  moving.momentum = 0.5;
  EXPECT_EQ(hogwild(moving).model, (std::vector<float>{0}));
  EXPECT_THROW(hogwild(by_hand(1, 1, {{0, kRead}, {0, kAdd}})), BrokenInvariant);
}

TEST(StrategyReference, GosgdByHand) {
  // a: 1 → 0.5, and half of its 1/2 under way. b merges before it steps: (0.5 × 1 + 0.25 × 0.5) / 0.75 = 5/6, then 5/12.
  const Result result = gosgd(by_hand(2, 1, {{0, Kind::step}, {0, kPush, 1}, {1, Kind::merge, 0}, {1, Kind::step}}));
  expect_near(result.replicas[0], {0.5F});
  expect_near(result.replicas[1], {5.0F / 12});
  // b steps first: 0.5 on both sides, whatever counts how much.
  EXPECT_EQ(gosgd(by_hand(2, 1, {{0, Kind::step}, {0, kPush, 1}, {1, Kind::step}, {1, Kind::merge, 0}})).replicas[1],
            (std::vector<float>{0.5F}));
  EXPECT_THROW(gosgd(by_hand(2, 1, {{0, Kind::step}, {0, kPush, 1}, {1, Kind::step}})), BrokenInvariant);
  EXPECT_THROW(gosgd(by_hand(2, 1, {{0, Kind::step}, {1, Kind::step}, {1, Kind::merge, 0}})), BrokenInvariant);
}

TEST(StrategyReference, AdPsgdByHand) {
  // b steps to 0.5 before it is asked: it answers 0.5, and both average with 1: 0.75. a then takes off half of its gradient at 1: 0.25.
  const std::vector<Event> order{{0, kPush, 1}, {0, Kind::step}, {1, Kind::step}, {1, Kind::merge, 0}, {1, kPush, 0}, {0, Kind::merge, 1}};
  const Result result = ad_psgd(by_hand(2, 1, order));
  EXPECT_EQ(result.replicas, (std::vector<std::vector<float>>{{0.25F}, {0.75F}}));
  EXPECT_EQ(ad_psgd(by_hand(1, 2, {{0, Kind::step}, {0, Kind::step}})).model, (std::vector<float>{0.25F}));
  EXPECT_THROW(ad_psgd(by_hand(3, 1, {{0, kPush, 2}})), BrokenInvariant);
  EXPECT_THROW(ad_psgd(by_hand(2, 1, {{0, kPush, 1}, {0, kPush, 1}})), BrokenInvariant);
}

TEST(StrategyReference, AnOrderThatEndsTooSoonOrTooLateIsRefused) {
  Schedule schedule = by_hand(2, 1, {{0, kPush}});
  EXPECT_THROW(async(schedule), BrokenInvariant);
  schedule.order = {{0, kPush}, {0, kPull}, {0, kPush}, {1, kPush}};
  EXPECT_THROW(async(schedule), BrokenInvariant);
  schedule.order = {{0, Kind::exchange}};
  EXPECT_THROW(async(schedule), BrokenInvariant);
}

}  // namespace
}  // namespace starling::strategy::reference
