// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace starling {
namespace {

TEST(Clock, TheWallClockShowsTheTimeOfTheSystem) {
  const auto before = static_cast<double>(std::time(nullptr));
  const double now = unix_seconds();
  EXPECT_GE(now, before);
  EXPECT_LE(now, static_cast<double>(std::time(nullptr)) + 1);
}

TEST(Clock, AStopwatchStartsAtZeroAndNeverGoesBack) {
  const Stopwatch stopwatch;
  Duration last = stopwatch.elapsed();
  EXPECT_GE(last, Duration::zero());
  EXPECT_LT(last, std::chrono::minutes(1));
  for (int i = 0; i < 1000; ++i) {
    const Duration now = stopwatch.elapsed();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, Duration::zero());
}

}  // namespace
}  // namespace starling
