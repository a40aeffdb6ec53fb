// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/ledger/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::ledger {
namespace {

TEST(Histogram, IsZeroWhileEmpty) {
  const Histogram empty;
  EXPECT_EQ(empty.count(), 0U);
  EXPECT_EQ(empty.mean(), 0);
  EXPECT_EQ(empty.quantile(0.5), 0U);
  EXPECT_EQ(empty.max(), 0U);
  EXPECT_TRUE(empty.entries().empty());
}

TEST(Histogram, TakesTheNearestRank) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100; ++value) histogram.add(value);
  // As decimals, although 0.07 × 100 is more than 7 in binary.
  for (std::uint64_t percent = 1; percent <= 100; ++percent) EXPECT_EQ(histogram.quantile(static_cast<double>(percent) / 100), percent);
  EXPECT_EQ(histogram.quantile(0), 1U);
  EXPECT_EQ(histogram.quantile(0.501), 51U);
  EXPECT_DOUBLE_EQ(histogram.mean(), 50.5);
  EXPECT_THROW(histogram.quantile(1.1), BrokenInvariant);
}

TEST(Histogram, KeepsHugeValuesExactly) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  Histogram histogram;
  histogram.add(kHuge);
  histogram.add(0, 3);
  histogram.add(5, 0);
  EXPECT_EQ(histogram.max(), kHuge);
  EXPECT_EQ(histogram.quantile(0.75), 0U);
  EXPECT_EQ(histogram.quantile(0.76), kHuge);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected{{0, 3}, {kHuge, 1}};
  EXPECT_EQ(histogram.entries(), expected);
}

TEST(Histogram, AgreesWithASortedVector) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStream random(seed, 0, "test");
    const std::size_t size = 1 + random.below(300);
    const std::uint64_t bound = std::uint64_t{1} << random.below(16);
    std::vector<std::uint64_t> values;
    Histogram first;
    Histogram second;
    for (std::size_t i = 0; i < size; ++i) {
      values.push_back(random.below(bound));
      (random.below(2) == 0 ? first : second).add(values.back());
    }
    Histogram other_way = second;
    other_way.add(first);
    first.add(second);
    EXPECT_EQ(first, other_way);
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const std::uint64_t value : values) sum += static_cast<double>(value);
    EXPECT_EQ(first.count(), size);
    EXPECT_DOUBLE_EQ(first.mean(), sum / static_cast<double>(size));
    EXPECT_EQ(first.max(), values.back());
    for (int i = 0; i < 20; ++i) {
      const double fraction = random.uniform();
      const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(size)));
      EXPECT_EQ(first.quantile(fraction), values[std::max<std::size_t>(rank, 1) - 1]) << fraction;
    }
  }
}

}  // namespace
}  // namespace starling::ledger
