// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/ledger/ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "starling/base/random.h"

namespace starling::ledger {
namespace {

using Numbers = std::set<std::uint64_t>;

Ranges to_ranges(const Numbers& numbers) {
  params::NumberSet set;
  for (const std::uint64_t number : numbers) set.insert(number);
  return set.ranges();
}

TEST(Ranges, AgreeWithSets) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStream random(seed, 0, "test");
    Numbers a;
    Numbers b;
    const double density_a = random.uniform();
    const double density_b = random.uniform();
    for (std::uint64_t number = 1; number <= 30; ++number) {
      if (random.uniform() < density_a) a.insert(number);
      if (random.uniform() < density_b) b.insert(number);
    }
    Numbers both;
    Numbers either;
    Numbers only_a;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::inserter(either, either.end()));
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(only_a, only_a.end()));
    EXPECT_EQ(in_both(to_ranges(a), to_ranges(b)), to_ranges(both));
    EXPECT_EQ(in_either(to_ranges(a), to_ranges(b)), to_ranges(either));
    EXPECT_EQ(without(to_ranges(a), to_ranges(b)), to_ranges(only_a));
    EXPECT_EQ(count(to_ranges(a)), a.size());
  }
}

TEST(Ranges, GoUpToTheLastNumber) {
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  const Ranges all{{1, kLast}};
  const Ranges end{{kLast, kLast}};
  const Ranges rest{{1, kLast - 1}};
  EXPECT_EQ(in_both(all, end), end);
  EXPECT_EQ(without(all, end), rest);
  EXPECT_EQ(without(all, all), Ranges{});
  EXPECT_EQ(in_either(rest, end), all);
  EXPECT_EQ(count(all), kLast);
}

}  // namespace
}  // namespace starling::ledger
