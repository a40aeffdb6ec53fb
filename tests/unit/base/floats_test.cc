// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/floats.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/base/shared_floats.h"

namespace starling {
namespace {

std::vector<float> random_values(std::size_t size, const char* purpose) {
  RandomStream stream(1, 0, purpose);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(stream.normal());
  return values;
}

TEST(Floats, EveryLengthAndAlignmentAgreesWithThePlainLoop) {
  for (std::size_t size = 0; size < 70; ++size) {
    for (std::size_t offset = 0; offset < 3; ++offset) {
      std::vector<float> a = random_values(size + offset, "a");
      std::vector<float> b = random_values(size + offset, "b");
      std::vector<float> expected = a;
      for (std::size_t i = offset; i < expected.size(); ++i) expected[i] += b[i];
      std::vector<float> sum = a;
      add_floats(std::span(sum).subspan(offset), std::span(b).subspan(offset));
      EXPECT_EQ(sum, expected) << size;
      add_floats_to_both(std::span(a).subspan(offset), std::span(b).subspan(offset));
      EXPECT_EQ(a, expected) << size;
      for (std::size_t i = offset; i < expected.size(); ++i) EXPECT_EQ(b[i], expected[i]);
    }
  }
  std::vector<float> two(2);
  std::vector<float> three(3);
  EXPECT_THROW(add_floats(two, three), BrokenInvariant);
}

TEST(SharedFloats, RangesOfEveryLength) {
  for (std::size_t size = 0; size < 20; ++size) {
    std::vector<float> shared(size + 2, -1);
    const std::span<float> middle = std::span(shared).subspan(1, size);
    const std::vector<float> values = random_values(size, "shared");
    store_shared(middle, values);
    std::vector<float> read(size);
    load_shared(middle, read);
    EXPECT_EQ(read, values);
    add_shared(middle, values);
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(middle[i], values[i] + values[i]);
    EXPECT_EQ(shared.front(), -1);
    EXPECT_EQ(shared.back(), -1);
  }
}

// Additions go in groups of components that depend on the address, so every length is tried at every place within two such groups.
TEST(SharedFloats, AdditionsAtEveryAddress) {
  constexpr std::size_t kPlaces = 8;
  constexpr std::size_t kLongest = 35;
  for (std::size_t place = 0; place < kPlaces; ++place) {
    for (std::size_t size = 0; size <= kLongest; ++size) {
      const std::vector<float> before = random_values(place + size + kPlaces, "before");
      std::vector<float> shared = before;
      const std::vector<float> values = random_values(size, "added");
      add_shared(std::span(shared).subspan(place, size), values);
      for (std::size_t i = 0; i < shared.size(); ++i) {
        const bool is_inside = i >= place && i < place + size;
        ASSERT_EQ(shared[i], is_inside ? before[i] + values[i - place] : before[i]) << size << " floats from " << place << ", at " << i;
      }
    }
  }
}

// Threads whose ranges begin at different places group components differently, and single components are added to as well; the groups
// overlap, and no addition may be lost for it.
TEST(SharedFloats, ConcurrentAdditionsInDifferentGroupsAreNotLost) {
  constexpr std::size_t kSize = 64;
  constexpr int kTimes = 20'000;  // Long enough for threads to meet, also where there are more of them than cores.
  std::barrier start(4);
  std::vector<float> sums(kSize);
  const std::vector<float> ones(kSize, 1.0F);
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      start.arrive_and_wait();
      for (int i = 0; i < kTimes; ++i) add_shared(std::span(sums).subspan(first), std::span(ones).subspan(first));
    });
  }
  threads.emplace_back([&] {
    start.arrive_and_wait();
    for (int i = 0; i < kTimes; ++i) {
      for (float& sum : sums) add_shared(sum, 1.0F);
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kSize; ++i)
    EXPECT_EQ(sums[i], static_cast<float>(kTimes) * static_cast<float>(std::min<std::size_t>(i, 2) + 2)) << i;
}

// Threads add, read and write the same components at the same time; run under ThreadSanitizer this is the proof that the vector forms
// raise no alarm, and anywhere that no addition is lost and no component torn.
TEST(SharedFloats, ConcurrentAdditionsAreNotLostAndReadsNotTorn) {
  constexpr std::size_t kSize = 103;
  constexpr int kTimes = 500;
  std::vector<float> sums(kSize);
  std::vector<float> flags(kSize);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<float> ones(kSize, 1);
      const std::vector<float> pattern(kSize, t == 0 ? 1.0F : 65536.5F);
      std::vector<float> read(kSize);
      for (int i = 0; i < kTimes; ++i) {
        add_shared(sums, ones);
        store_shared(flags, pattern);
        load_shared(flags, read);
        for (const float value : read) EXPECT_TRUE(value == 1.0F || value == 65536.5F);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float sum : sums) EXPECT_EQ(sum, 3.0F * kTimes);
}

}  // namespace
}  // namespace starling
