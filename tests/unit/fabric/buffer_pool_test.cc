// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/buffer_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace starling::fabric::mpi {
namespace {

TEST(BufferPool, ABlockIsUsedAgainForTheSameSizeAndSmallerOnesOfItsClass) {
  const auto pool = std::make_shared<BufferPool>();
  const std::byte* first = pool->allocate(100'000).bytes().data();
  EXPECT_EQ(pool->allocate(100'000).bytes().data(), first);
  EXPECT_EQ(pool->allocate(70'000).bytes().data(), first);
}

TEST(BufferPool, ABlockThatIsHeldIsNotGivenOutAgain) {
  const auto pool = std::make_shared<BufferPool>();
  std::vector<Payload> held;
  std::set<const std::byte*> places;
  for (int i = 0; i < 50; ++i) {
    held.push_back(pool->allocate(10'000));
    places.insert(held.back().bytes().data());
  }
  EXPECT_EQ(places.size(), held.size());
}

TEST(BufferPool, SizesAreExactAndAligned) {
  const auto pool = std::make_shared<BufferPool>();
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{1} << 20}) {
    const Payload payload = pool->allocate(size);
    EXPECT_EQ(payload.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.bytes().data()) % Payload::kAlignment, 0U);
  }
}

TEST(BufferPool, PayloadsMayOutliveItAndGoOnAnotherThread) {
  auto pool = std::make_shared<BufferPool>();
  Payload payload = pool->allocate(50'000);
  payload.writable()[49'999] = std::byte{1};
  pool.reset();
  std::thread([last = std::move(payload)] { EXPECT_EQ(last.bytes()[49'999], std::byte{1}); }).join();
}

}  // namespace
}  // namespace starling::fabric::mpi
