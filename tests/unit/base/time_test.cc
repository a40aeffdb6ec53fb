// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/time.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling {
namespace {

using namespace std::chrono_literals;

TEST(Time, Parses) {
  EXPECT_EQ(parse_duration("30ms", "x"), 30ms);
  EXPECT_EQ(parse_duration("1.5 s", "x"), 1500ms);
  EXPECT_EQ(parse_duration("250us", "x"), 250us);
  EXPECT_EQ(parse_duration("250µs", "x"), 250us);
  EXPECT_EQ(parse_duration("7ns", "x"), 7ns);
  EXPECT_EQ(parse_duration("2min", "x"), 2min);
  EXPECT_EQ(parse_duration("0", "x"), 0ns);
  EXPECT_EQ(parse_duration("1e30s", "x"), kEndOfTime);
}

TEST(Time, RejectsWithTheValueAndAHint) {
  for (const char* text : {"", "ms", "30", "-1s", "nan s", "3 days", "1s2"}) {
    try {
      parse_duration(text, "the time-out");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("the time-out is '" + std::string(text) + "'"), std::string::npos) << error.what();
    }
  }
}

TEST(Time, Formats) {
  EXPECT_EQ(format_duration(12ns), "12 ns");
  EXPECT_EQ(format_duration(1500ns), "1.5 us");
  EXPECT_EQ(format_duration(30ms), "30 ms");
  EXPECT_EQ(format_duration(90s), "90 s");
}

}  // namespace
}  // namespace starling
