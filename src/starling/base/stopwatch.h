// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How long something has taken by the wall clock, for people who wait. Nothing that is computed may depend on it.
#pragma once

#include <chrono>

namespace starling {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace starling
