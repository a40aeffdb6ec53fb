// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/crc32c.h"

#include <array>
#include <cstddef>

namespace starling {
namespace {

// What each byte adds. A byte at a time is enough for the few kilobytes that a log of events takes.
constexpr std::array<std::uint32_t, 256> kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // The lowest bit stands for the highest power.
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    table[byte] = remainder;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  std::uint32_t remainder = ~before;
  for (const char character : bytes) {
    const auto byte = static_cast<std::uint8_t>(character);
    remainder = (remainder >> 8) ^ kTable[static_cast<std::size_t>((remainder ^ byte) & 0xff)];
  }
  return ~remainder;
}

}  // namespace starling
