// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/touched_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::strategy {
namespace {

using Ranges = std::vector<Range>;

// 3 rows of 4, 2 rows of 6 (an image each), 150 biases in pieces of 64, 64 and 22; and a buffer, which no update has.
params::Layout layout() {
  params::Layout layout;
  layout.add("matrix", {3, 4});
  layout.add("kernel", {2, 1, 2, 3});
  layout.add("bias", {150});
  layout.add("count", {1}, params::SliceKind::buffer);
  return layout;
}
constexpr std::size_t kFloats = 12 + 12 + 150;

Ranges touched(const std::vector<std::size_t>& components) {
  std::vector<float> update(kFloats);
  for (const std::size_t component : components) update[component] = -0.5F;
  TouchedRows rows(layout());
  const std::span<const Range> ranges = rows.of(update);
  return {ranges.begin(), ranges.end()};
}

TEST(TouchedRows, AreWholeRowsOfWhatIsNotZero) {
  EXPECT_EQ(touched({}), Ranges{});
  EXPECT_EQ(touched({0}), (Ranges{{0, 4}}));
  EXPECT_EQ(touched({5, 6}), (Ranges{{4, 4}}));
  EXPECT_EQ(touched({17}), (Ranges{{12, 6}}));
  EXPECT_EQ(touched({24}), (Ranges{{24, 64}}));
  EXPECT_EQ(touched({24 + 149}), (Ranges{{24 + 128, 22}}));
}

TEST(TouchedRows, NeighboursAreOneRange) {
  EXPECT_EQ(touched({0, 7}), (Ranges{{0, 8}}));
  EXPECT_EQ(touched({0, 11}), (Ranges{{0, 4}, {8, 4}}));
  EXPECT_EQ(touched({11, 12}), (Ranges{{8, 10}}));  // Across slices, too.
  std::vector<std::size_t> all(kFloats);
  for (std::size_t i = 0; i < kFloats; ++i) all[i] = i;
  EXPECT_EQ(touched(all), (Ranges{{0, kFloats}}));
}

// A zero with a sign is a zero; what is not a number is not.
TEST(TouchedRows, ANegativeZeroTouchesNothing) {
  TouchedRows rows(layout());
  std::vector<float> update(kFloats, -0.0F);
  EXPECT_TRUE(rows.of(update).empty());
  update[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(rows.of(update).size(), 1U);
}

TEST(TouchedRows, EveryComponentThatIsNotZeroIsInOneRange) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    RandomStream random(seed, 0, "touched rows");
    std::vector<float> update(kFloats);
    const std::uint64_t touches = random.below(12);
    for (std::uint64_t i = 0; i < touches; ++i) update[random.below(kFloats)] = static_cast<float>(random.normal());
    TouchedRows rows(layout());
    std::vector<int> covered(kFloats);
    std::size_t end = 0;
    for (const Range& range : rows.of(update)) {
      ASSERT_GT(range.size, 0U) << "seed " << seed;
      ASSERT_TRUE(range.begin > end || (range.begin == 0 && end == 0)) << "seed " << seed << ": neighbours are not one";
      end = range.begin + range.size;
      for (std::size_t i = range.begin; i < end; ++i) ++covered[i];
    }
    for (std::size_t i = 0; i < kFloats; ++i) {
      ASSERT_LE(covered[i], 1) << "seed " << seed;
      ASSERT_TRUE(covered[i] == 1 || update[i] == 0) << "seed " << seed << ", component " << i;
    }
  }
}

TEST(TouchedRows, AnUpdateOfAnotherSizeIsABrokenInvariant) {
  TouchedRows rows(layout());
  EXPECT_THROW((void)rows.of(std::vector<float>(kFloats + 1)), BrokenInvariant);
}

}  // namespace
}  // namespace starling::strategy
