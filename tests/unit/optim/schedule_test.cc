// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "starling/base/error.h"

namespace starling::optim {
namespace {

TEST(Schedule, ConstantStaysWhereItIs) {
  const Schedule schedule({.lr = 0.3, .epochs = 2, .batch = 32});
  for (const double epoch : {0.0, 0.7, 2.0, 5.0}) {
    EXPECT_EQ(schedule.lr(epoch), 0.3);
    EXPECT_EQ(schedule.batch(epoch), 32U);
  }
}

TEST(Schedule, PolynomialFallsToZeroAtTheEnd) {
  const Schedule line({.kind = "polynomial", .lr = 0.5, .epochs = 10});
  EXPECT_EQ(line.lr(0), 0.5);
  EXPECT_EQ(line.lr(5), 0.25);
  EXPECT_EQ(line.lr(10), 0);
  EXPECT_EQ(line.lr(11), 0);
  for (const double power : {0.5, 2.0, 3.5}) {
    const Schedule schedule({.kind = "polynomial", .lr = 0.5, .epochs = 10, .power = power});
    for (const double epoch : {0.0, 0.1, 3.0, 9.99}) EXPECT_NEAR(schedule.lr(epoch), 0.5 * std::pow(1 - epoch / 10, power), 1e-14);
    EXPECT_EQ(schedule.lr(10), 0);
  }
  const Schedule flat({.kind = "polynomial", .lr = 0.5, .epochs = 10, .power = 0});
  EXPECT_EQ(flat.lr(10), 0.5);
}

TEST(Schedule, MultiStepDropsAtItsMilestones) {
  const Schedule schedule({.kind = "multi-step", .lr = 1, .epochs = 90, .milestones = {30, 60}, .gamma = 0.5});
  EXPECT_EQ(schedule.lr(29.999), 1);
  EXPECT_EQ(schedule.lr(30), 0.5);
  EXPECT_EQ(schedule.lr(59.999), 0.5);
  EXPECT_EQ(schedule.lr(60), 0.25);
  EXPECT_EQ(schedule.lr(100), 0.25);
}

TEST(Schedule, CosineFollowsTheCosineFromTheWarmupToTheEnd) {
  const Schedule schedule({.kind = "cosine", .lr = 0.8, .epochs = 12, .final_lr = 0.1, .warmup_epochs = 2});
  for (double epoch = 2; epoch <= 12; epoch += 0.125) {
    EXPECT_NEAR(schedule.lr(epoch), 0.1 + 0.7 * (1 + std::cos(std::numbers::pi * (epoch - 2) / 10)) / 2, 1e-15) << epoch;
  }
  EXPECT_NEAR(schedule.lr(2), 0.8, 1e-15);
  EXPECT_NEAR(schedule.lr(12), 0.1, 1e-15);
  EXPECT_EQ(schedule.lr(13), schedule.lr(12));
}

TEST(Schedule, WarmupRisesLinearly) {
  const Schedule schedule({.lr = 0.4, .epochs = 10, .warmup_epochs = 4, .warmup_from = 0.25});
  EXPECT_EQ(schedule.lr(0), 0.1);
  EXPECT_NEAR(schedule.lr(2), 0.25, 1e-15);
  EXPECT_EQ(schedule.lr(4), 0.4);
  EXPECT_EQ(Schedule({.lr = 0.4, .warmup_epochs = 1}).lr(0), 0);
}

// Nothing but a milestone makes the rate jump: over a thousandth of an epoch it changes by no more than the steepest slope allows.
TEST(Schedule, TheRateDoesNotJump) {
  for (const std::string& kind : schedule_names()) {
    const Schedule schedule({.kind = kind, .lr = 1, .epochs = 10, .power = 2, .milestones = {20}, .warmup_epochs = 3, .warmup_from = 0.1});
    for (double epoch = 0; epoch < 11; epoch += 0.001) {
      EXPECT_NEAR(schedule.lr(epoch), schedule.lr(epoch + 0.001), 4e-4) << kind << " at " << epoch;
    }
  }
}

TEST(Schedule, BatchGrowsByRoundedSteps) {
  const Schedule schedule({.epochs = 10, .batch = 64, .batch_warmup_epochs = 4, .batch_warmup_from = 16});
  EXPECT_EQ(schedule.batch(0), 16U);
  EXPECT_EQ(schedule.batch(1), 28U);
  EXPECT_EQ(schedule.batch(1.02), 28U);
  EXPECT_EQ(schedule.batch(1.05), 29U);
  EXPECT_EQ(schedule.batch(4), 64U);
  std::size_t previous = 1;
  for (double epoch = 0; epoch < 5; epoch += 0.01) {
    EXPECT_GE(schedule.batch(epoch), previous);
    previous = schedule.batch(epoch);
  }
}

TEST(Schedule, TheFirstStageIsTheWarmup) {
  const Schedule schedule({.epochs = 10, .warmup_epochs = 2, .two_stage = true});
  EXPECT_TRUE(schedule.first_stage(0));
  EXPECT_TRUE(schedule.first_stage(1.999));
  EXPECT_FALSE(schedule.first_stage(2));
  EXPECT_FALSE(Schedule({.epochs = 10, .warmup_epochs = 2}).first_stage(0));
}

std::string message_of(const ScheduleOptions& options) {
  try {
    const Schedule schedule(options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, EveryOptionHasItsRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto expect_refused = [](const ScheduleOptions& options, const std::string& name) {
    EXPECT_NE(message_of(options).find(name), std::string::npos) << name << ": " << message_of(options);
  };
  for (const double wrong : {-1.0, nan, infinity}) {
    expect_refused({.lr = wrong}, "lr is");
    expect_refused({.epochs = wrong}, "epochs is");
    expect_refused({.power = wrong}, "power is");
    expect_refused({.gamma = wrong}, "gamma is");
    expect_refused({.final_lr = wrong}, "final_lr is");
    expect_refused({.warmup_epochs = wrong}, "warmup is");
    expect_refused({.warmup_from = wrong}, "warmup_from is");
    expect_refused({.batch_warmup_epochs = wrong}, "batch_warmup is");
    expect_refused({.kind = "multi-step", .milestones = {wrong}}, "a milestone is");
  }
  expect_refused({.lr = 0}, "lr is");
  expect_refused({.epochs = 0}, "epochs is");
  expect_refused({.lr = 0.1, .final_lr = 0.2}, "final_lr is");
  expect_refused({.epochs = 1, .warmup_epochs = 1.5}, "warmup is");
  expect_refused({.warmup_from = 1.5}, "warmup_from is");
  expect_refused({.batch = 0}, "batch is");
  expect_refused({.batch = 8, .batch_warmup_epochs = 1, .batch_warmup_from = 9}, "batch_warmup_from is");
  expect_refused({.batch = 8, .batch_warmup_epochs = 1, .batch_warmup_from = 0}, "batch_warmup_from is");
  expect_refused({.kind = "multi-step"}, "needs milestones");
  expect_refused({.kind = "multi-step", .milestones = {3, 3}}, "more than the one before, 3");
  expect_refused({.two_stage = true}, "two_stage needs a warm-up");
  expect_refused({.kind = "cosin"}, "Did you mean 'cosine'?");
  EXPECT_EQ(message_of({}), "");
  EXPECT_THROW((void)Schedule({}).lr(-1), BrokenInvariant);
}

}  // namespace
}  // namespace starling::optim
