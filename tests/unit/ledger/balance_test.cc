// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Books that balance, and books that do not in every way there is; whose time went where.
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

using params::UpdateId;
using Drops = std::map<std::string, std::uint64_t>;
using Errors = std::vector<std::string>;

// Workers 0 and 1, servers 2 and 3.
class TwoServers : public testing::Test {
 protected:
  Account& account(int rank) { return ledger_.account(rank); }
  UpdateId produce(int rank) { return account(rank).produced(); }
  void apply_at_both(const UpdateId& id) {
    account(2).applied_fresh(id);
    account(3).applied_fresh(id);
  }
  // Every update is accounted for, so the sum holds too.
  Balance balanced(const std::vector<int>& lost) {
    Balance balance = ledger_.close(lost);
    EXPECT_TRUE(balance.balanced);
    EXPECT_EQ(balance.errors, Errors{});
    std::uint64_t sum = balance.applied;
    for (const auto& [reason, times] : balance.dropped) sum += times;
    EXPECT_EQ(sum, balance.produced);
    return balance;
  }
  Errors errors(const std::vector<int>& lost = {}) {
    const Balance balance = ledger_.close(lost);
    EXPECT_FALSE(balance.balanced);
    return balance.errors;
  }

  Ledger ledger_{4, 2, {2, 3}};
};

TEST_F(TwoServers, BalanceWhenNothingHappened) {
  const Balance balance = balanced({});
  EXPECT_EQ(balance.produced, 0U);
  EXPECT_EQ(balance.idle_fraction, 0);
  EXPECT_FALSE(balance.straggler);
}

TEST_F(TwoServers, BalanceWhenEverythingIsApplied) {
  for (int i = 0; i < 5; ++i) apply_at_both(produce(i % 2));
  const Balance balance = balanced({});
  EXPECT_EQ(balance.produced, 5U);
  EXPECT_EQ(balance.applied, 5U);
  EXPECT_EQ(balance.dropped, Drops{});
}

TEST_F(TwoServers, BalanceInWhateverOrderUpdatesArrive) {
  const UpdateId first = produce(0);
  const UpdateId second = produce(0);
  apply_at_both(second);
  account(2).applied_fresh(first);
  EXPECT_FALSE(ledger_.close({}).balanced);
  account(3).applied_fresh(first);
  EXPECT_EQ(balanced({}).applied, 2U);
}

TEST_F(TwoServers, CountWhatItsOriginDroppedOnceForBoth) {
  account(0).dropped(produce(0), kNotFinite);
  apply_at_both(produce(0));
  EXPECT_EQ(balanced({}).dropped, (Drops{{kNotFinite, 1}}));
}

TEST_F(TwoServers, LetTheOriginDropWhatOneOfThemAppliedAlready) {
  const UpdateId id = produce(0);
  account(2).applied_fresh(id);
  account(0).dropped(id, kReceiverLost);
  const Balance balance = balanced({});
  EXPECT_EQ(balance.applied, 0U);
  EXPECT_EQ(balance.dropped, (Drops{{kReceiverLost, 1}}));
}

TEST_F(TwoServers, TakeTheDropOfOneServerForItselfAlone) {
  const UpdateId id = produce(0);
  account(2).dropped(id, "too old");
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was neither applied at rank 3 nor dropped"}));
  account(3).applied_fresh(id);
  EXPECT_EQ(balanced({}).dropped, (Drops{{"too old", 1}}));
}

TEST_F(TwoServers, TakeTheDropOfOneWhoPassesItOnForAll) {
  account(1).dropped(produce(0), kSenderLost);
  EXPECT_EQ(balanced({}).dropped, (Drops{{kSenderLost, 1}}));
}

TEST_F(TwoServers, CountAnUpdateOnceWhateverTheReasons) {
  const UpdateId id = produce(0);
  account(2).dropped(id, "too old");
  account(2).dropped(id, "another reason");
  account(3).dropped(id, "a third");
  account(0).dropped(id, "of the origin");
  EXPECT_EQ(balanced({}).dropped, (Drops{{"of the origin", 1}}));
}

TEST_F(TwoServers, BlameTheSenderThatIsLost) {
  produce(0);
  account(2).applied_fresh(produce(0));
  apply_at_both(produce(1));
  const Balance balance = balanced({0});
  EXPECT_EQ(balance.applied, 1U);
  EXPECT_EQ(balance.dropped, (Drops{{kSenderLost, 2}}));
}

TEST_F(TwoServers, CountWhatTheLostServerMissedAsDroppedThoughTheOtherAppliedIt) {
  apply_at_both(produce(0));
  account(2).applied_fresh(produce(0));
  const Balance balance = balanced({3});
  EXPECT_EQ(balance.applied, 1U);
  EXPECT_EQ(balance.dropped, (Drops{{kReceiverLost, 1}}));
}

TEST_F(TwoServers, BlameTheSenderWhereBothAreLost) {
  produce(0);
  EXPECT_EQ(balanced({0, 2, 3}).dropped, (Drops{{kSenderLost, 1}}));
}

TEST_F(TwoServers, StillMissWhatNoLostRankExplains) {
  produce(0);
  produce(1);
  const Balance balance = ledger_.close({0, 3});
  EXPECT_EQ(balance.errors, (Errors{"update 1 of rank 1 was neither applied at rank 2 nor dropped"}));
  EXPECT_EQ(balance.dropped, (Drops{{kSenderLost, 1}}));
}

TEST_F(TwoServers, NameWhatIsMissing) {
  apply_at_both(produce(1));
  account(3).applied_fresh(produce(1));
  EXPECT_EQ(errors(), (Errors{"update 2 of rank 1 was neither applied at rank 2 nor dropped"}));
}

TEST_F(TwoServers, NameWhatWasAppliedTwice) {
  const UpdateId id = produce(1);
  apply_at_both(id);
  account(3).applied_fresh(id);
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 1 was applied twice at rank 3"}));
}

TEST_F(TwoServers, NameWhatWasAppliedTwiceByDifferentRanks) {
  const UpdateId id = produce(1);
  apply_at_both(id);
  account(0).applied_at(3, {.id = id}, 0, params::VersionVector(4));
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 1 was applied twice at rank 3"}));
}

TEST_F(TwoServers, NameWhatWasAppliedButNeverProduced) {
  apply_at_both({.origin = 0, .number = 1});
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was applied at rank 2, but never produced",
                              "update 1 of rank 0 was applied at rank 3, but never produced"}));
}

TEST_F(TwoServers, NameWhatWasDroppedButNeverProduced) {
  account(0).dropped({.origin = 0, .number = 1}, kNotFinite);
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was dropped by rank 0 (not finite), but never produced"}));
}

TEST_F(TwoServers, NameWhatWasAppliedAndDroppedByOneServer) {
  const UpdateId id = produce(0);
  apply_at_both(id);
  account(2).dropped(id, kNotFinite);
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was dropped by rank 2 (not finite), but applied there"}));
}

TEST_F(TwoServers, NameWhatWasDroppedButAppliedByAll) {
  const UpdateId id = produce(0);
  apply_at_both(id);
  account(0).dropped(id, kNotFinite);
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was dropped by rank 0 (not finite), but applied at all places"}));
}

TEST_F(TwoServers, NameWhatWasAppliedWhereItShouldNot) {
  const UpdateId id = produce(0);
  apply_at_both(id);
  account(0).applied_fresh(id);
  EXPECT_EQ(errors(), (Errors{"update 1 of rank 0 was applied at rank 0, which is no place for updates"}));
}

TEST_F(TwoServers, NameTenErrorsAtMost) {
  for (int i = 0; i < 1000; ++i) produce(0);
  EXPECT_EQ(errors().size(), 10U);
  EXPECT_EQ(errors().back(), "update 10 of rank 0 was neither applied at rank 2 nor dropped");
  account(2).applied_fresh({.origin = 0, .number = ~std::uint64_t{0}});
  EXPECT_EQ(errors().size(), 10U);
}

TEST(Balance, IsTheSameWhoeverAppliesAtACentre) {
  Ledger ledger(3, 3, {0});
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 2; ++i) {
      const params::Stamp stamp{.id = ledger.account(rank).produced(), .version = 1, .contents = params::VersionVector(3)};
      ledger.account(rank).applied_at(0, stamp, 3, params::VersionVector(3));
    }
  }
  const Balance balance = ledger.close({});
  EXPECT_TRUE(balance.balanced);
  EXPECT_EQ(balance.applied, 6U);
  EXPECT_EQ(balance.version_staleness.quantile(0.5), 2U);
}

TEST(Balance, KnowsWhatItIsAskedFor) {
  EXPECT_THROW(Ledger(2, 3, {0}), BrokenInvariant);
  EXPECT_THROW(Ledger(2, 1, {}), BrokenInvariant);
  EXPECT_THROW(Ledger(2, 1, {2}), BrokenInvariant);
  EXPECT_THROW(Ledger(2, 1, {0, 0}), BrokenInvariant);
  EXPECT_THROW(Ledger(2, 1, {0}).close({2}), BrokenInvariant);
}

// Workers with these own compute times per step, in milliseconds, and so many steps.
Balance with_times(const std::vector<int>& compute_ms, const std::vector<int>& steps) {
  Ledger ledger(static_cast<int>(compute_ms.size()) + 1, static_cast<int>(compute_ms.size()), {0});
  for (std::size_t i = 0; i < compute_ms.size(); ++i) {
    Account& account = ledger.account(static_cast<int>(i));
    for (int step = 0; step < steps[i]; ++step) {
      account.time().compute += std::chrono::milliseconds(compute_ms[i]);
      account.count_step();
    }
  }
  return ledger.close({});
}

TEST(Straggler, IsTheSlowOneOfTwo) {
  const Balance balance = with_times({10, 13}, {5, 4});
  ASSERT_TRUE(balance.straggler);
  EXPECT_EQ(balance.straggler->rank, 1);
  EXPECT_DOUBLE_EQ(balance.straggler->times, 1.3);
}

TEST(Straggler, IsComparedWithTheMedianOfTheOthers) {
  const Balance balance = with_times({30, 10, 12, 11}, {3, 3, 3, 3});
  ASSERT_TRUE(balance.straggler);
  EXPECT_EQ(balance.straggler->rank, 0);
  EXPECT_NEAR(balance.straggler->times, 30.0 / 11, 1e-9);
  const Balance five = with_times({10, 10, 14, 14, 40}, {1, 1, 1, 1, 1});
  ASSERT_TRUE(five.straggler);
  EXPECT_NEAR(five.straggler->times, 40.0 / 12, 1e-9);
}

TEST(Straggler, IsNobodyWhereAllAreAboutAsFast) {
  EXPECT_FALSE(with_times({100, 119}, {5, 5}).straggler);
  EXPECT_TRUE(with_times({100, 120}, {5, 5}).straggler);
  EXPECT_FALSE(with_times({100, 100, 100}, {1, 5, 9}).straggler);
}

TEST(Straggler, NeedsSomebodyToCompareWith) {
  EXPECT_FALSE(with_times({100}, {5}).straggler);
  EXPECT_FALSE(with_times({100, 1}, {5, 0}).straggler);
  EXPECT_FALSE(with_times({100, 0}, {5, 5}).straggler);
}

TEST(Straggler, IsNotTheOneWhoWaits) {
  Ledger ledger(2, 2, {0});
  using std::chrono::milliseconds;
  ledger.account(0).time() = {.compute = milliseconds(10), .waiting = milliseconds(28), .communication = milliseconds(2)};
  ledger.account(1).time() = {.compute = milliseconds(38), .waiting = milliseconds(0), .communication = milliseconds(2)};
  for (int rank = 0; rank < 2; ++rank) ledger.account(rank).count_step();
  const Balance balance = ledger.close({});
  ASSERT_TRUE(balance.straggler);
  EXPECT_EQ(balance.straggler->rank, 1);
  EXPECT_DOUBLE_EQ(balance.idle_fraction, 28.0 / 80);
}

TEST(Balance, AddsUpTheRest) {
  Ledger ledger(3, 2, {2});
  ledger.account(0).count_bytes_sent(5);
  ledger.account(0).count_bytes_sent(7);
  ledger.account(2).count_bytes_sent(100);
  ledger.account(0).pulled(1);
  ledger.account(1).pulled(3);
  ledger.account(2).time().waiting = std::chrono::seconds(100);  // A server that waits is not idle: that is its work.
  ledger.account(1).time() = {.compute = std::chrono::seconds(3), .waiting = std::chrono::seconds(1)};
  const Balance balance = ledger.close({});
  EXPECT_EQ(balance.bytes_sent, 107U);
  EXPECT_DOUBLE_EQ(balance.skew.mean(), 2);
  EXPECT_EQ(balance.time.size(), 2U);
  EXPECT_EQ(balance.steps, (std::vector<std::uint64_t>{0, 0}));
  EXPECT_DOUBLE_EQ(balance.idle_fraction, 0.25);
}

TEST(BalanceText, SaysItInAFewLines) {
  using std::chrono::milliseconds;
  Balance balance{.produced = 12, .applied = 9, .dropped = {{kNotFinite, 1}, {kSenderLost, 2}}, .bytes_sent = 1500};
  for (const std::uint64_t value : {0U, 1U, 1U, 3U}) balance.version_staleness.add(value);
  balance.set_staleness.add(2);
  balance.time = {{milliseconds(1500), milliseconds(20), milliseconds(3)}, {milliseconds(3000), milliseconds(0), milliseconds(3)}};
  balance.steps = {5, 7};
  balance.idle_fraction = 0.0456;
  balance.straggler = {.rank = 1, .times = 1.4286};
  EXPECT_EQ(to_text(balance),
            "updates 12 produced, 9 applied, 3 dropped (1 not finite, 2 sender lost)\n"
            "staleness (versions) mean 1.25  p50 1  p95 3  max 3\n"
            "staleness (gradient sets) mean 2.00  p50 2  p95 2  max 2\n"
            "sent 1.5 kB, idle 4.6 %\n"
            "worker 0: 5 steps, compute 1.5 s, waiting 20 ms, communication 3 ms\n"
            "worker 1: 7 steps, compute 3 s, waiting 0 s, communication 3 ms\n"
            "straggler: worker 1, whose own compute takes 1.43 times as long per step as that of the others\n");
}

TEST(BalanceText, SaysWhatIsWrong) {
  Balance balance{.balanced = false, .errors = {"update 1 of rank 0 was applied twice at rank 1"}};
  balance.skew.add(2);
  const std::string text = to_text(balance);
  EXPECT_NE(text.find("updates 0 produced, 0 applied, 0 dropped\n"), std::string::npos);
  EXPECT_NE(text.find("skew between shards mean 2.00  p50 2  p95 2  max 2\n"), std::string::npos);
  EXPECT_NE(text.find("the books do not balance:\n  update 1 of rank 0 was applied twice at rank 1\n"), std::string::npos);
}

TEST(BalanceText, SumsUpManyWorkers) {
  Balance balance;
  for (int i = 0; i < 100; ++i) {
    balance.time.push_back({.compute = std::chrono::seconds(1 + i % 3), .waiting = std::chrono::seconds(1)});
    balance.steps.push_back(static_cast<std::uint64_t>(10 + i % 2));
  }
  const std::string text = to_text(balance);
  EXPECT_NE(text.find("100 workers: 10 to 11 steps, compute 1 s to 3 s, waiting 1 s, communication 0 s\n"), std::string::npos) << text;
}

// A lost rank is a place, too: what others had meant for it alone is dropped for good, and no more than that.
TEST(WriteOff, CoversWhatWasMeantForALostRank) {
  Ledger ledger(3, 3, {0, 1, 2});
  const std::vector<int> to_one{1};
  const std::vector<int> to_two{2};
  const std::vector<int> to_both{1, 2};
  ledger.account(1).applied_fresh(ledger.account(0).produced_for(to_one));
  (void)ledger.account(0).produced_for(to_one);  // Under way when rank 1 is lost.
  ledger.account(2).applied_fresh(ledger.account(0).produced_for(to_two));
  ledger.account(2).applied_fresh(ledger.account(0).produced_for(to_both));
  (void)ledger.account(1).produced_for(to_two);
  ledger.write_off({1});
  const Balance balance = ledger.close({});  // In the run that goes on nobody is lost.
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  EXPECT_EQ(balance.produced, 5U);
  EXPECT_EQ(balance.applied, 2U);
  EXPECT_EQ(balance.dropped, (Drops{{kReceiverLost, 2}, {kSenderLost, 1}}));
}

}  // namespace
}  // namespace starling::ledger
