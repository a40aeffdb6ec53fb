// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How stale an update was, by both measures.
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

using params::NumberSet;
using params::Stamp;
using params::VersionVector;

// The updates 1, …, n of every rank.
VersionVector prefixes(const std::vector<std::uint64_t>& lengths) {
  VersionVector contents(static_cast<int>(lengths.size()));
  for (std::size_t origin = 0; origin < lengths.size(); ++origin) contents[static_cast<int>(origin)] = NumberSet(lengths[origin]);
  return contents;
}

// The staleness of one update of rank 0 that is applied at rank 1; `before` it was computed, `now` it is applied.
Balance applied_once(const VersionVector& before, const VersionVector& now) {
  Ledger ledger(3, 3, {1});
  const Stamp stamp{.id = ledger.account(0).produced(), .version = before.size(), .contents = before};
  ledger.account(1).applied(stamp, now.size(), now);
  Balance balance = ledger.close({});
  EXPECT_EQ(balance.version_staleness.count(), 1U);
  EXPECT_EQ(balance.set_staleness.count(), 1U);
  return balance;
}

// Tosi et al., their figure: green was applied at model 2 while blue was computed at model 1.
TEST(Staleness, IsOneForBlueWhereGreenWasAppliedBefore) {
  const Balance balance = applied_once(prefixes({0, 0, 0}), prefixes({0, 1, 0}));
  EXPECT_EQ(balance.set_staleness.max(), 1U);
  EXPECT_EQ(balance.version_staleness.max(), 1U);
}

TEST(Staleness, IsZeroForAnOwnGradientAppliedAtOnce) {
  Ledger ledger(2, 2, {0});
  VersionVector here = prefixes({0, 4});
  ledger.account(0).applied({.id = ledger.account(0).produced(), .version = 4, .contents = here}, 4, here);
  ledger.account(0).applied_fresh(ledger.account(0).produced());
  const Balance balance = ledger.close({});
  EXPECT_EQ(balance.set_staleness.count(), 2U);
  EXPECT_EQ(balance.set_staleness.max(), 0U);
  EXPECT_EQ(balance.version_staleness.count(), 2U);
  EXPECT_EQ(balance.version_staleness.max(), 0U);
}

TEST(Staleness, IsTwoForDifferentSetsOfOneSizeAndTheVersionsDoNotShowIt) {
  const Balance balance = applied_once(prefixes({0, 1, 0}), prefixes({0, 0, 1}));
  EXPECT_EQ(balance.set_staleness.max(), 2U);
  EXPECT_EQ(balance.version_staleness.max(), 0U);
}

TEST(Staleness, CountsTheUpdatesInTheGaps) {
  VersionVector before = prefixes({0, 2, 0});
  VersionVector now = prefixes({0, 2, 0});
  now[1].insert(4);  // Update 3 was dropped.
  now[1].insert(5);
  EXPECT_EQ(applied_once(before, now).set_staleness.max(), 2U);
  before[1].insert(5);
  EXPECT_EQ(applied_once(before, now).set_staleness.max(), 1U);
}

TEST(Staleness, IsAtLeastZeroVersionsWhereThePlaceIsBehind) {
  const Balance balance = applied_once(prefixes({5, 0, 0}), prefixes({3, 0, 0}));
  EXPECT_EQ(balance.version_staleness.max(), 0U);
  EXPECT_EQ(balance.set_staleness.max(), 2U);
}

TEST(Staleness, CountsOriginsThatOneSideDoesNotKnowAsEmpty) {
  EXPECT_EQ(applied_once(VersionVector(), prefixes({1, 2, 3})).set_staleness.max(), 6U);
}

TEST(Staleness, IsOfEveryApplication) {
  Ledger ledger(4, 2, {2, 3});
  for (int i = 0; i < 3; ++i) {
    const Stamp stamp{.id = ledger.account(0).produced(), .contents = prefixes({0, 0, 0, 0})};
    for (const int place : {2, 3}) ledger.account(place).applied(stamp, static_cast<std::uint64_t>(i), VersionVector(4));
  }
  const Balance balance = ledger.close({});
  EXPECT_EQ(balance.version_staleness.count(), 6U);
  EXPECT_DOUBLE_EQ(balance.version_staleness.mean(), 1);
  EXPECT_EQ(ledger.account(2).version_staleness().count(), 3U);
}

TEST(Staleness, OfUpdatesThatCannotBeIsABrokenInvariant) {
  Ledger ledger(2, 1, {1});
  EXPECT_THROW(ledger.account(1).applied_fresh({.origin = 2, .number = 1}), BrokenInvariant);
  EXPECT_THROW(ledger.account(1).applied_fresh({.origin = -1, .number = 1}), BrokenInvariant);
  EXPECT_THROW(ledger.account(1).applied_fresh({.origin = 0, .number = 0}), BrokenInvariant);
  EXPECT_THROW(ledger.account(1).dropped({.origin = 2, .number = 1}, kNotFinite), BrokenInvariant);
  EXPECT_THROW(ledger.account(0).applied_at(2, {.id = {.origin = 0, .number = 1}}, 0, VersionVector(2)), BrokenInvariant);
  EXPECT_THROW(ledger.account(2), BrokenInvariant);
}

}  // namespace
}  // namespace starling::ledger
