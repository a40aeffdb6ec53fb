// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/units.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling {
namespace {

TEST(Units, ReadBandwidths) {
  EXPECT_EQ(parse_bandwidth("10Gbit/s", "x"), 1.25e9);
  EXPECT_EQ(parse_bandwidth("125 MB/s", "x"), 1.25e8);
  EXPECT_EQ(parse_bandwidth("56kbit/s", "x"), 7000);
  for (const char* text : {"", "10", "0GB/s", "-1GB/s", "10Gb", "fast"}) EXPECT_THROW(parse_bandwidth(text, "x"), UserError) << text;
}

TEST(Units, WriteBytes) {
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(246824), "246.8 kB");
  EXPECT_EQ(format_bytes(1e8), "100 MB");
}

}  // namespace
}  // namespace starling
