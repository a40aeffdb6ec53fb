// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/params/version_vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::params {
namespace {

using Range = NumberSet::Range;
using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();

NumberSet set_of(std::initializer_list<std::uint64_t> numbers) {
  NumberSet set;
  for (const std::uint64_t number : numbers) set.insert(number);
  return set;
}

TEST(NumberSet, NumbersInOrderArePrefix) {
  NumberSet set;
  EXPECT_EQ(set.largest(), 0U);
  EXPECT_TRUE(set.ranges().empty());
  for (std::uint64_t number = 1; number <= 5; ++number) EXPECT_TRUE(set.insert(number));
  EXPECT_FALSE(set.insert(3));
  EXPECT_TRUE(set.is_prefix());
  EXPECT_EQ(set, NumberSet(5));
}

TEST(NumberSet, GapsAreKeptAndClosed) {
  NumberSet set = set_of({1, 2, 5, 9, 7});
  EXPECT_FALSE(set.is_prefix());
  EXPECT_EQ(set.prefix(), 2U);
  EXPECT_EQ(set.largest(), 9U);
  EXPECT_EQ(set.size(), 5U);
  EXPECT_EQ(set.ranges(), (std::vector<Range>{{1, 2}, {5, 5}, {7, 7}, {9, 9}}));
  EXPECT_TRUE(set.insert(8));  // Joins two ranges.
  EXPECT_EQ(set.ranges(), (std::vector<Range>{{1, 2}, {5, 5}, {7, 9}}));
  EXPECT_TRUE(set.insert(6));
  EXPECT_TRUE(set.insert(4));  // Touches the next only.
  EXPECT_EQ(set.ranges(), (std::vector<Range>{{1, 2}, {4, 9}}));
  EXPECT_TRUE(set.insert(3));  // Joins the prefix.
  EXPECT_EQ(set, NumberSet(9));
}

TEST(NumberSet, TheLastNumberThereIsHasNoSuccessor) {
  NumberSet set = set_of({kLast, kLast - 1});
  EXPECT_EQ(set.ranges(), (std::vector<Range>{{kLast - 1, kLast}}));
  EXPECT_TRUE(set.contains(kLast));
  EXPECT_FALSE(set.insert(kLast));
  EXPECT_FALSE(NumberSet(kLast).insert(kLast));
}

TEST(NumberSet, ThereIsNoUpdateZero) {
  NumberSet set;
  EXPECT_THROW(set.insert(0), BrokenInvariant);
  EXPECT_FALSE(NumberSet(3).contains(0));
}

// Everything against a std::set of the same numbers.
TEST(NumberSet, IsASet) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream random(seed, 0, "number sets");
    const std::uint64_t bound = 1 + random.below(40);
    NumberSet sets[2];
    std::set<std::uint64_t> plain[2];
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t which = random.below(2);
      const std::uint64_t number = 1 + random.below(bound);
      ASSERT_EQ(sets[which].insert(number), plain[which].insert(number).second);
      ASSERT_EQ(sets[which].size(), plain[which].size());
      ASSERT_EQ(sets[which].largest(), *plain[which].rbegin());
      Words listed;
      const std::vector<Range> ranges = sets[which].ranges();
      for (const Range& range : ranges) {
        for (std::uint64_t member = range.first; member <= range.last; ++member) listed.push_back(member);
      }
      ASSERT_TRUE(std::ranges::equal(listed, plain[which]));
      for (std::uint64_t member = 0; member <= bound + 1; ++member) {
        ASSERT_EQ(sets[which].contains(member), plain[which].contains(member)) << member;
      }
      Words difference;
      std::ranges::set_symmetric_difference(plain[0], plain[1], std::back_inserter(difference));
      ASSERT_EQ(distance(sets[0], sets[1]), difference.size());
      ASSERT_EQ(distance(sets[1], sets[0]), difference.size());
      ASSERT_EQ(sets[0] == sets[1], plain[0] == plain[1]);
    }
  }
}

TEST(VersionVector, DistanceCountsWhatIsInOneOnly) {
  // The examples of Tosi et al.: nothing against {green}; the same; {g1} against {g2}.
  VersionVector a(2);
  VersionVector b(2);
  b[1].insert(1);
  EXPECT_EQ(distance(a, b), 1U);
  a[0].insert(1);
  EXPECT_EQ(distance(a, b), 2U);
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(distance(a, a), 0U);
  EXPECT_EQ(distance(VersionVector(), b), 1U);
  EXPECT_EQ(distance(b, VersionVector(1)), 1U);
}

VersionVector random_vector(RandomStream& random) {
  VersionVector vector(static_cast<int>(random.below(6)));
  for (int origin = 0; origin < vector.origins(); ++origin) {
    vector[origin] = NumberSet(random.below(5));
    const std::uint64_t extra = random.below(2) * random.below(8);
    for (std::uint64_t i = 0; i < extra; ++i) vector[origin].insert(1 + random.below(30));
  }
  return vector;
}

TEST(VersionVector, ComesBackFromItsWords) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream random(seed, 0, "version vectors");
    const VersionVector first = random_vector(random);
    const VersionVector second = random_vector(random);
    Words words;
    first.write(words);
    second.write(words);
    words.push_back(42);
    std::span<const std::uint64_t> rest = words;
    ASSERT_EQ(VersionVector::read(rest), first);
    ASSERT_EQ(VersionVector::read(rest), second);
    ASSERT_EQ(rest.size(), 1U);
    ASSERT_EQ(rest[0], 42U);
  }
}

TEST(VersionVector, PrefixesTakeAWordEach) {
  VersionVector vector(3);
  vector[1] = NumberSet(7);
  Words words;
  vector.write(words);
  EXPECT_EQ(words, (Words{3, 0, 0, 7, 0}));
}

TEST(VersionVector, WordsThatAreNoneAreRefused) {
  const std::vector<Words> none = {{},
                                   {1},
                                   {1, 0},                                 // The prefix is missing.
                                   {kLast, 0, 1},                          // More origins than words.
                                   {kLast, kLast},                         //
                                   {1, 2, 0, 0, 1, 5, 5},                  // More with gaps than origins.
                                   {1, 1, 2},                              // The entry is missing.
                                   {1, 1, 2, 1, 1, 5, 5},                  // Of an origin that is not there.
                                   {1, 1, 2, 0, 0},                        // Without ranges.
                                   {1, 1, 2, 0, kLast, 5, 5},              // With more than there are words.
                                   {1, 1, 2, 0, 1, 5},                     // Cut off.
                                   {1, 1, 2, 0, 1, 3, 5},                  // Touches the prefix.
                                   {1, 1, 2, 0, 1, 2, 5},                  // Lies in it.
                                   {1, 1, 2, 0, 1, 6, 5},                  // Ends before it begins.
                                   {1, 1, 2, 0, 2, 5, 6, 7, 8},            // Two that touch.
                                   {1, 1, 2, 0, 2, 8, 9, 5, 6},            // Descending.
                                   {1, 1, kLast, 0, 1, 1, 1},              // Nothing comes after the last.
                                   {1, 1, 2, 0, 2, 4, kLast, 0, 0},        //
                                   {2, 2, 2, 2, 1, 1, 5, 5, 0, 1, 5, 5},   // Origins not ascending.
                                   {2, 2, 2, 2, 0, 1, 5, 5, 0, 1, 7, 7}};  // The same one twice.
  for (const Words& words : none) {
    std::span<const std::uint64_t> rest = words;
    EXPECT_FALSE(VersionVector::read(rest)) << testing::PrintToString(words);
    EXPECT_EQ(rest.size(), words.size());
  }
}

// Whatever is read is a vector that writes itself the same way: no words give a set that breaks its own rules.
TEST(VersionVector, HostileWordsGiveAVectorOrNothing) {
  int read = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream random(seed, 0, "hostile words");
    Words words;
    random_vector(random).write(words);
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      words[random.below(words.size())] = random.below(4) == 0 ? random.next_u64() : random.below(12);
    }
    words.resize(random.below(4) == 0 ? random.below(words.size() + 1) : words.size());
    std::span<const std::uint64_t> rest = words;
    const std::optional<VersionVector> vector = VersionVector::read(rest);
    if (!vector) continue;
    ++read;
    Words again;
    vector->write(again);
    ASSERT_EQ(again, Words(words.begin(), words.end() - static_cast<std::ptrdiff_t>(rest.size())));
    for (int origin = 0; origin < vector->origins(); ++origin) {
      NumberSet built((*vector)[origin].prefix());
      const std::vector<Range> ranges = (*vector)[origin].ranges();
      for (const Range& range : ranges) {
        if (range.last - range.first < 100) {
          for (std::uint64_t number = range.first; number < range.last; ++number) built.insert(number);
          built.insert(range.last);
        } else if (range.first > 1) {
          built = (*vector)[origin];  // Too long to build.
        }
      }
      ASSERT_EQ(built, (*vector)[origin]);
    }
  }
  EXPECT_GT(read, 300);
}

}  // namespace
}  // namespace starling::params
