// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Books of strategies in which an update is meant for some ranks only.
#include <gtest/gtest.h>

#include <array>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

using params::UpdateId;
using Drops = std::map<std::string, std::uint64_t>;
using Errors = std::vector<std::string>;

class Addressed : public testing::Test {
 protected:
  UpdateId produce(int rank, std::vector<int> places) { return ledger_.account(rank).produced_for(places); }
  void apply(int rank, const UpdateId& id) { ledger_.account(rank).applied_measured(id, 0, 0); }

  Ledger ledger_{4, 4, {0, 1, 2, 3}};
};

TEST_F(Addressed, BalancesWhenThoseMeantHaveIt) {
  const UpdateId first = produce(0, {1});
  const UpdateId second = produce(0, {0, 3});
  apply(1, first);
  apply(0, second);
  apply(3, second);
  const Balance balance = ledger_.close({});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.produced, 2U);
  EXPECT_EQ(balance.applied, 2U);
  EXPECT_EQ(balance.dropped, Drops{});
}

TEST_F(Addressed, NamesWhatIsMissingAndWhere) {
  const UpdateId id = produce(0, {1, 2});
  apply(1, id);
  const Balance balance = ledger_.close({});
  EXPECT_FALSE(balance.balanced);
  EXPECT_EQ(balance.errors, Errors{"update 1 of rank 0 was neither applied at rank 2 nor dropped"});
}

TEST_F(Addressed, NamesWhoAppliesWhatIsNotMeantForIt) {
  const UpdateId id = produce(0, {1});
  apply(1, id);
  apply(2, id);
  const Balance balance = ledger_.close({});
  EXPECT_FALSE(balance.balanced);
  EXPECT_EQ(balance.errors, Errors{"update 1 of rank 0 was applied at rank 2, for which it was not meant"});
}

TEST_F(Addressed, AReceiverThatDropsSpeaksForItself) {
  const UpdateId id = produce(2, {0, 1});
  apply(0, id);
  ledger_.account(1).dropped(id, "lost on the way");
  const Balance balance = ledger_.close({});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.applied, 0U);
  EXPECT_EQ(balance.dropped, (Drops{{"lost on the way", 1}}));
}

TEST_F(Addressed, ALostReceiverExplainsOnlyWhatWasMeantForIt) {
  (void)produce(0, {1});
  const UpdateId second = produce(0, {2});
  apply(2, second);
  const Balance balance = ledger_.close({1});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.applied, 1U);
  EXPECT_EQ(balance.dropped, (Drops{{kReceiverLost, 1}}));
}

TEST_F(Addressed, WhatALostSenderDeliveredIsNotWrittenOff) {
  const UpdateId delivered = produce(0, {1});
  (void)produce(0, {2});
  apply(1, delivered);
  ledger_.write_off({0});
  const Balance balance = ledger_.close({});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.applied, 1U);
  EXPECT_EQ(balance.dropped, (Drops{{kSenderLost, 1}}));
}

TEST_F(Addressed, IsKeptInACheckpoint) {
  apply(1, produce(0, {1}));
  (void)produce(0, {2});
  Ledger other(4, 4, {0, 1, 2, 3});
  other.restore(ledger_.save());
  EXPECT_EQ(other.save(), ledger_.save());
  EXPECT_EQ(other.close({}).errors, Errors{"update 2 of rank 0 was neither applied at rank 2 nor dropped"});
  other.account(2).applied_measured({.origin = 0, .number = 2}, 3, 5);
  const Balance balance = other.close({});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.version_staleness.max(), 3U);
  EXPECT_EQ(balance.set_staleness.max(), 5U);
}

TEST_F(Addressed, AnAccountDoesOneOrTheOther) {
  (void)produce(0, {1});
  EXPECT_THROW((void)ledger_.account(0).produced(), BrokenInvariant);
  (void)ledger_.account(1).produced();
  EXPECT_THROW(produce(1, {2}), BrokenInvariant);
  EXPECT_THROW(produce(2, {}), BrokenInvariant);
  EXPECT_THROW(produce(2, {3, 3}), BrokenInvariant);
}

}  // namespace
}  // namespace starling::ledger
