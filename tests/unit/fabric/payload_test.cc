// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "starling/base/error.h"

namespace starling::fabric {
namespace {

TEST(Payload, IsAlignedAndHoldsWhatWasPutIn) {
  const std::vector<float> values{1, 2, 3};
  const Payload payload = Payload::copy_of(std::span<const float>(values));
  EXPECT_EQ(payload.size_bytes(), 12U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.bytes().data()) % Payload::kAlignment, 0U);
  EXPECT_EQ(payload.as<float>()[2], 3);
  EXPECT_THROW((void)payload.as<double>(), BrokenInvariant);
}

TEST(Payload, MovesItsMemory) {
  Payload a = Payload::allocate(100);
  const std::byte* memory = a.bytes().data();
  Payload b = std::move(a);
  EXPECT_EQ(b.bytes().data(), memory);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): that is what is tested.
  a = std::move(b);
  EXPECT_EQ(a.bytes().data(), memory);
}

TEST(Payload, SharesUntilSomebodyWrites) {
  const std::vector<float> values{1, 2};
  Payload a = Payload::copy_of(std::span<const float>(values));
  Payload b = a.share();
  EXPECT_EQ(a.bytes().data(), b.bytes().data());
  b.writable_as<float>()[0] = 9;
  EXPECT_EQ(a.as<float>()[0], 1);
  EXPECT_EQ(b.as<float>()[0], 9);
  EXPECT_EQ(b.as<float>()[1], 2);
  const std::byte* memory = a.bytes().data();
  a.writable();
  EXPECT_EQ(a.bytes().data(), memory);  // The only handle writes in place.
}

TEST(Payload, AdoptedMemoryIsReleasedOnceWithTheLastHandle) {
  std::vector<std::byte> memory(8);
  int released = 0;
  {
    const Payload a = Payload::adopt(memory, [&] { ++released; });
    const Payload b = a.share();
    EXPECT_EQ(b.bytes().data(), memory.data());
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Payload, BorrowedMemoryIsNeverWritten) {
  const std::vector<float> values{1, 2};
  int released = 0;
  Payload payload = Payload::borrow(std::as_bytes(std::span(values)), [&] { ++released; });
  EXPECT_EQ(payload.as<float>().data(), values.data());
  payload.writable_as<float>()[0] = 9;
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(payload.as<float>()[0], 9);
  EXPECT_EQ(payload.as<float>()[1], 2);
  EXPECT_EQ(released, 1);  // It is not looked at any more.
  const std::byte* memory = payload.bytes().data();
  payload.writable();
  EXPECT_EQ(payload.bytes().data(), memory);  // Its own now.

  Payload nothing = Payload::borrow({}, [] {});
  EXPECT_TRUE(nothing.writable().empty());
}

TEST(Payload, AHeadBelongsToOneHandle) {
  const std::vector<std::byte> head{std::byte{7}, std::byte{8}};
  Payload a = Payload::allocate(10);
  EXPECT_TRUE(a.head().empty());
  EXPECT_EQ(a.total_bytes(), 10U);
  a.set_head(head);
  EXPECT_TRUE(std::ranges::equal(a.head(), head));
  EXPECT_EQ(a.total_bytes(), 12U);
  EXPECT_EQ(a.size_bytes(), 10U);

  Payload b = a.share();
  EXPECT_TRUE(b.head().empty());
  b.set_head(std::span(head).first(1));
  EXPECT_EQ(b.head().size(), 1U);
  EXPECT_EQ(a.head().size(), 2U);
  EXPECT_EQ(a.bytes().data(), b.bytes().data());

  b.writable();  // A copy of the bytes, with the head it had.
  EXPECT_NE(a.bytes().data(), b.bytes().data());
  EXPECT_EQ(b.head().size(), 1U);

  b = std::move(a);
  EXPECT_TRUE(std::ranges::equal(b.head(), head));
  EXPECT_EQ(a.total_bytes(), 0U);  // NOLINT(bugprone-use-after-move): that is what is tested.
  b.set_head(b.head().subspan(1));
  EXPECT_TRUE(std::ranges::equal(b.head(), std::span(head).last(1)));
  b.set_head({});
  EXPECT_TRUE(b.head().empty());
}

TEST(Payload, AHeadNeedsNoBytes) {
  const std::vector<std::byte> head{std::byte{7}};
  Payload payload;
  payload.set_head(head);
  EXPECT_TRUE(payload.empty());
  EXPECT_EQ(payload.total_bytes(), 1U);
}

TEST(Payload, EmptyOnesDoNothing) {
  Payload empty;
  EXPECT_EQ(empty.size_bytes(), 0U);
  EXPECT_TRUE(empty.share().empty());
  EXPECT_TRUE(empty.writable().empty());
  EXPECT_TRUE(empty.as<float>().empty());
}

}  // namespace
}  // namespace starling::fabric
