// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers that kernels and layers agree on.
#pragma once

#include <algorithm>
#include <cstddef>

namespace starling::compute::native {

// Samples that are computed side by side.
inline constexpr int kGroup = 16;

// Outputs that are computed at once, so that every input loaded is used that often: 6 × 16 samples fill the registers of AVX2.
inline constexpr int kBlock = 6;

inline constexpr std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Outputs 0 … count - 1 cut into as few blocks of at most kBlock as possible, of almost equal size.
struct Blocks {
  int count;
  int blocks = (count + kBlock - 1) / kBlock;

  int begin(int block) const { return block * (count / blocks) + std::min(block, count % blocks); }
  int size(int block) const { return count / blocks + (block < count % blocks ? 1 : 0); }
};

}  // namespace starling::compute::native
