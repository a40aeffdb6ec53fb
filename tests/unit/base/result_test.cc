// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace starling {
namespace {

using namespace std::chrono_literals;

Failure example() { return {FailureKind::timeout, 2, 3, "a message with tag 7 from rank 3", 1500ms, "it is late"}; }

TEST(Failure, SaysWhoWhatHowLongAndWhy) {
  EXPECT_EQ(example().message(), "time-out: rank 2 waited 1.5 s for a message with tag 7 from rank 3: it is late");
}

TEST(Result, HoldsAValueOrAFailure) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(5));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 5);
  EXPECT_THROW((void)good.failure(), BrokenInvariant);
  Result<int> bad(example());
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.failure().peer, 3);
  EXPECT_THROW(bad.value(), BrokenInvariant);
}

TEST(Status, TryReturnsTheFailure) {
  const auto outer = [](Status inner) -> Result<int> {
    STARLING_TRY(inner);
    return 1;
  };
  EXPECT_TRUE(outer({}).ok());
  EXPECT_EQ(outer(example()).failure().awaited, example().awaited);
}

}  // namespace
}  // namespace starling
