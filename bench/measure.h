// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks share: the load of the machine, medians, and how often to repeat something short.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace starling::bench {

// The sizes of the all-reduce table: one float, a small layer, LeNet-5, a multilayer perceptron, ResNet-50.
inline constexpr std::array<std::size_t, 5> kAllReduceFloats{1, 1000, 61706, 1'800'000, 25'000'000};

// Enough repetitions to measure for some tens of milliseconds, the same for every column of a table.
inline int repetitions(std::size_t floats) { return static_cast<int>(std::clamp<std::size_t>(200'000'000 / (floats + 4000), 4, 20000)); }

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A figure counts only on a quiet machine: the load is printed beside it.
inline void print_load(const char* when) {
  std::array<double, 3> load{};
  if (getloadavg(load.data(), 3) == 3)
    std::printf("load of the machine %s: %.2f over one minute, %.2f over five\n", when, load[0], load[1]);
}

}  // namespace starling::bench
