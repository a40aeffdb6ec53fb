// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/error.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Check, ThrowsWithConditionPlaceAndMessage) {
  try {
    STARLING_CHECK(1 + 1 == 3, std::string("arithmetic is broken"));
    FAIL();
  } catch (const BrokenInvariant& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("arithmetic is broken"), std::string::npos);
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(text.find("error_test.cc"), std::string::npos);
  }
}

TEST(NearestName, FindsTheOneMeantAndOnlyThat) {
  const std::vector<std::string> names{"sync", "async", "easgd", "ea-wild"};
  EXPECT_EQ(nearest_name_hint("asyncc", names), " Did you mean 'async'?");
  EXPECT_EQ(nearest_name_hint("eawild", names), " Did you mean 'ea-wild'?");
  EXPECT_EQ(nearest_name_hint("hogwild!!", names), "");
  EXPECT_EQ(nearest_name_hint("x", {}), "");
}

}  // namespace
}  // namespace starling
