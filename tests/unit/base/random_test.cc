// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/portable_math.h"

namespace starling {
namespace {

// The known answers published with the Random123 library.
TEST(Philox, KnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// A change of these numbers changes every run of every user: it must be deliberate.
TEST(RandomStream, StaysTheSameForEver) {
  RandomStream golden(42, 3, "golden");
  const std::vector<std::uint64_t> expected{16329037405722277435U, 9155885666430126622U, 13994426142662938825U};
  for (const std::uint64_t value : expected) EXPECT_EQ(golden.next_u64(), value);
}

TEST(RandomStream, DiffersBySeedRankAndPurpose) {
  std::set<std::uint64_t> first;
  for (const std::uint64_t seed : {0U, 1U, 2U}) {
    for (const std::uint32_t rank : {0U, 1U, 999U}) {
      for (const char* purpose : {"", "a", "b", "shuffle"}) first.insert(RandomStream(seed, rank, purpose).next_u64());
    }
  }
  EXPECT_EQ(first.size(), 36U);
}

TEST(RandomStream, SeekContinuesExactly) {
  for (int drawn = 0; drawn < 12; ++drawn) {
    RandomStream original(5, 6, "seek");
    for (int i = 0; i < drawn; ++i) original.next_u32();
    RandomStream restored(5, 6, "seek");
    restored.seek(original.position());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(restored.next_u32(), original.next_u32()) << drawn;
  }
}

TEST(RandomStream, UniformAndNormalHaveTheirMoments) {
  RandomStream stream(1, 0, "moments");
  constexpr int kCount = 200000;
  double sum = 0;
  double square = 0;
  double fourth = 0;
  double uniform = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    uniform += u;
    const double x = stream.normal();
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(uniform / kCount, 0.5, 0.004);
  EXPECT_NEAR(sum / kCount, 0, 0.012);
  EXPECT_NEAR(square / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 3, 0.12);
}

TEST(RandomStream, BelowIsInRangeAndReachesAll) {
  RandomStream stream(1, 0, "below");
  std::vector<int> count(7);
  for (int i = 0; i < 7000; ++i) ++count[stream.below(7)];
  for (const int c : count) EXPECT_NEAR(c, 1000, 150);
  EXPECT_EQ(stream.below(1), 0U);
  EXPECT_THROW(stream.below(0), BrokenInvariant);
}

TEST(PortableMath, AgreesWithTheCLibrary) {
  RandomStream stream(1, 0, "math");
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp((stream.uniform() - 0.5) * 1000);
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
    const double near_one = 1 + (stream.uniform() - 0.5) * 1e-3;
    EXPECT_NEAR(portable_log(near_one), std::log(near_one), 5e-16 * std::abs(std::log(near_one))) << near_one;
    const double y = (stream.uniform() - 0.5) * 1000;
    EXPECT_NEAR(portable_exp(y) / std::exp(y), 1, 1e-15) << y;
  }
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(-1000), 0);
  EXPECT_TRUE(std::isinf(portable_exp(1000)));
}

TEST(RandomStream, FillingIsDrawingOneByOne) {
  for (const std::size_t skipped : {0U, 1U, 3U, 4U, 1000U}) {
    for (const std::size_t count : {0U, 1U, 3U, 4U, 7U, 16U, 63U, 64U, 1001U}) {
      RandomStream one(9, 3, "fill");
      RandomStream many(9, 3, "fill");
      one.seek((std::uint64_t{5} << 33) + skipped);  // Beyond 32 bits, too.
      many.seek((std::uint64_t{5} << 33) + skipped);
      std::vector<std::uint32_t> words(count);
      many.fill(words);
      for (const std::uint32_t word : words) EXPECT_EQ(word, one.next_u32());
      EXPECT_EQ(many.position(), one.position());
      EXPECT_EQ(many.next_u32(), one.next_u32());
    }
  }
}

}  // namespace
}  // namespace starling
