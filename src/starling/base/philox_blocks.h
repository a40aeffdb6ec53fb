// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace starling {

// Blocks first, first + 1, … of the stream of a rank: four words each, those of philox4x32({low(block), high(block), rank, 0}, key).
// Several blocks are computed side by side.
void philox_blocks(std::uint64_t first, std::size_t count, std::uint32_t rank, std::array<std::uint32_t, 2> key, std::uint32_t* words);

}  // namespace starling
