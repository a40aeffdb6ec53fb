// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers with units, other than times (time.h), as people write and read them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace starling {

// Reads "10Gbit/s", "125 MB/s", "1.25GB/s" or "56kbit/s" as bytes per second: decimal prefixes, 8 bits to the byte. Throws UserError naming
// `what`.
double parse_bandwidth(std::string_view text, std::string_view what);

// "12 B", "1.5 kB", "246.8 kB", "100 MB".
std::string format_bytes(double bytes);

}  // namespace starling
