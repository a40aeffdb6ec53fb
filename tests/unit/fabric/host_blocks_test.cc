// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/host_blocks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::fabric::mpi {
namespace {

std::vector<std::byte> filled(std::size_t size, std::uint64_t number) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(number * 31 + i);
  return bytes;
}

class HostBlocksTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 16;

  Payload take(std::uint64_t place, std::size_t size) const { return HostBlocks::take(file_, place, size); }

  std::shared_ptr<const MemoryFile> file_ = std::make_shared<const MemoryFile>(MemoryFile::make(kBytes));
  HostBlocks blocks_{file_->bytes()};
};

TEST_F(HostBlocksTest, WhatIsPutIsTakenFromWhereItLies) {
  const std::vector<std::byte> body = filled(1000, 1);
  const auto place = blocks_.put(body);
  ASSERT_TRUE(place);
  const Payload payload = take(*place, body.size());
  EXPECT_TRUE(std::ranges::equal(payload.bytes(), body));
  EXPECT_GE(payload.bytes().data(), file_->bytes().data());
  EXPECT_LE(payload.bytes().data() + body.size(), file_->bytes().data() + kBytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.bytes().data()) % Payload::kAlignment, 0U);
}

TEST_F(HostBlocksTest, WhenThereIsNoRoomItSaysSoUntilABlockComesBack) {
  const std::vector<std::byte> half = filled(kBytes / 2, 1);
  const auto first = blocks_.put(half);
  ASSERT_TRUE(first);
  EXPECT_FALSE(blocks_.put(half));  // Each block has a header.
  EXPECT_FALSE(blocks_.put(filled(kBytes, 2)));
  EXPECT_FALSE(blocks_.put(filled(2 * kBytes, 3)));
  {
    const Payload payload = take(*first, half.size());
    EXPECT_FALSE(blocks_.put(half));
  }
  EXPECT_EQ(blocks_.put(half), first);
}

TEST_F(HostBlocksTest, ABlockThatIsKeptDoesNotHoldUpTheOthers) {
  const std::vector<std::byte> body = filled(kBytes / 8, 1);
  const auto kept_place = blocks_.put(body);
  ASSERT_TRUE(kept_place);
  const Payload kept = take(*kept_place, body.size());
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::vector<std::byte> other = filled(kBytes / 2, i);
    const auto place = blocks_.put(other);
    ASSERT_TRUE(place) << i;
    EXPECT_TRUE(std::ranges::equal(take(*place, other.size()).bytes(), other));
  }
  EXPECT_TRUE(std::ranges::equal(kept.bytes(), body));
}

TEST_F(HostBlocksTest, AShareKeepsTheBlock) {
  const auto place = blocks_.put(filled(kBytes / 2, 1));
  ASSERT_TRUE(place);
  Payload payload = take(*place, kBytes / 2);
  Payload share = payload.share();
  payload = Payload();
  EXPECT_FALSE(blocks_.put(filled(kBytes / 2, 2)));
  share = Payload();
  EXPECT_TRUE(blocks_.put(filled(kBytes / 2, 2)));
}

TEST_F(HostBlocksTest, APayloadOutlivesItsSender) {
  const std::vector<std::byte> body = filled(500, 9);
  const auto place = blocks_.put(body);
  ASSERT_TRUE(place);
  const Payload payload = take(*place, body.size());
  file_.reset();
  EXPECT_TRUE(std::ranges::equal(payload.bytes(), body));
}

TEST_F(HostBlocksTest, APlaceBeyondTheMemoryIsABrokenInvariant) {
  EXPECT_THROW(take(kBytes, 1), BrokenInvariant);
  EXPECT_THROW(take(64, kBytes), BrokenInvariant);
  EXPECT_THROW(take(7, 1), BrokenInvariant);
  EXPECT_THROW(take(~std::uint64_t{0} - 63, 1), BrokenInvariant);
}

// Bodies of many sizes, given back in any order: none is ever written over while somebody has it.
TEST_F(HostBlocksTest, ManyInAnyOrder) {
  constexpr std::uint64_t kSeed = 20261118;
  SCOPED_TRACE(kSeed);
  RandomStream random(kSeed, 0, "blocks");
  struct Held {
    Payload payload;
    std::vector<std::byte> body;
  };
  std::vector<Held> held;
  int refused = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    if (!held.empty() && random.below(2) == 0) {
      const std::size_t which = random.below(held.size());
      ASSERT_TRUE(std::ranges::equal(held[which].payload.bytes(), held[which].body)) << i;
      std::swap(held[which], held.back());
      held.pop_back();
      continue;
    }
    std::vector<std::byte> body = filled(random.below(kBytes / 6), i);
    const auto place = blocks_.put(body);
    if (place)
      held.push_back({take(*place, body.size()), std::move(body)});
    else
      ++refused;
  }
  EXPECT_GT(refused, 0);
  for (const Held& one : held) EXPECT_TRUE(std::ranges::equal(one.payload.bytes(), one.body));
}

TEST_F(HostBlocksTest, AnotherProcessTakesAndGivesBack) {
  const std::vector<std::byte> body = filled(kBytes / 2, 5);
  const auto place = blocks_.put(body);
  ASSERT_TRUE(place);
  const MemoryFile::Place file_place = file_->place();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool same = false;
    {
      const auto opened = std::make_shared<const MemoryFile>(MemoryFile::open(file_place, kBytes));
      same = std::ranges::equal(HostBlocks::take(opened, *place, body.size()).bytes(), body);
    }
    ::_exit(same ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(blocks_.put(body), place);
}

TEST(MemoryFileTest, BeginsWithZerosAndIsSeenThroughBothDoors) {
  const MemoryFile file = MemoryFile::make(5000);
  EXPECT_TRUE(std::ranges::all_of(file.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  const MemoryFile same = MemoryFile::open(file.place(), 5000);
  file.bytes()[4999] = std::byte{7};
  EXPECT_EQ(same.bytes()[4999], std::byte{7});
}

// As where the number of a process is that of another one here.
TEST(MemoryFileTest, OneThatIsTooSmallIsNotMapped) {
  const MemoryFile file = MemoryFile::make(64);
  EXPECT_THROW(MemoryFile::open(file.place(), 5000), std::runtime_error);
}

TEST(MemoryFileTest, OneThatIsNotThereIsAnErrorWithTheSystemsReason) {
  try {
    MemoryFile::open({.process = ::getpid(), .descriptor = 1 << 20}, 64);
    FAIL() << "it opened";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
}

TEST(MemoryFileTest, NoneHasNoBytes) { EXPECT_TRUE(MemoryFile::make(0).bytes().empty()); }

}  // namespace
}  // namespace starling::fabric::mpi
