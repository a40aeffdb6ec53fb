// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The real clocks, for what people look at: time left, and when a line of a log was written. Nothing that is computed may depend on them;
// ranks ask their endpoint for the time.
#pragma once

#include <chrono>

#include "starling/base/time.h"

namespace starling {

// Seconds since the beginning of 1970, by the clock on the wall.
double unix_seconds();

// Runs from when it is made. Never goes back.
class Stopwatch {
 public:
  Duration elapsed() const { return Clock::now() - start_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace starling
