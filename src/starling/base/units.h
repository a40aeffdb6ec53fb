// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers with units, other than times (time.h), as people write and read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace starling {

// A text such as "1.5 ms" in its two parts, the blanks between them left out. Nothing if it does not start with a finite number.
struct Quantity {
  double value = 0;
  std::string_view unit;
};
std::optional<Quantity> parse_quantity(const std::string& text);

// Reads "10Gbit/s", "125 MB/s", "1.25GB/s" or "56kbit/s" as bytes per second: decimal prefixes, 8 bits to the byte. Throws UserError naming
// `what`.
double parse_bandwidth(std::string_view text, std::string_view what);

// "12 B", "1.5 kB", "246.8 kB", "100 MB".
std::string format_bytes(double bytes);

}  // namespace starling
