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

}  // namespace
}  // namespace starling
