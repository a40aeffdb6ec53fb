// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The books in a checkpoint.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/ledger/ledger.h"

namespace starling::ledger {
namespace {

// Something of everything, wrong books included.
void fill(Ledger& ledger) {
  params::VersionVector contents(4);
  for (int i = 0; i < 20; ++i) {
    const params::Stamp stamp{.id = ledger.account(i % 2).produced(), .version = 0, .contents = contents};
    if (i == 7) ledger.account(1).dropped(stamp.id, kNotFinite);
    if (i == 7 || i == 10) continue;
    ledger.account(2).applied(stamp, static_cast<std::uint64_t>(i) * 1000, contents);
    ledger.account(0).applied_at(3, stamp, 1, contents);
    contents[i % 2].insert(stamp.id.number);
  }
  ledger.account(2).applied_fresh({.origin = 0, .number = 1});
  ledger.account(3).dropped({.origin = 0, .number = ~std::uint64_t{0}}, "a \"reason\"\nof its own");
  ledger.account(1).pulled(2);
  ledger.account(1).time() = {Duration(1), Duration(std::int64_t{1} << 62), Duration(3)};
  ledger.account(1).count_bytes_sent(~std::uint64_t{0} - 5);
  ledger.account(1).count_step();
}

void expect_equal(const Balance& a, const Balance& b) {
  EXPECT_EQ(a.balanced, b.balanced);
  EXPECT_EQ(a.errors, b.errors);
  EXPECT_EQ(a.produced, b.produced);
  EXPECT_EQ(a.applied, b.applied);
  EXPECT_EQ(a.dropped, b.dropped);
  EXPECT_EQ(a.version_staleness, b.version_staleness);
  EXPECT_EQ(a.set_staleness, b.set_staleness);
  EXPECT_EQ(a.skew, b.skew);
  EXPECT_EQ(a.bytes_sent, b.bytes_sent);
  EXPECT_EQ(a.time, b.time);
  EXPECT_EQ(a.steps, b.steps);
}

TEST(LedgerFile, KeepsEverything) {
  Ledger ledger(4, 2, {2, 3});
  fill(ledger);
  EXPECT_FALSE(ledger.close({}).balanced);
  Ledger other(4, 2, {3, 2});
  Account& account = other.account(0);
  account.produced();
  other.restore(ledger.save());
  EXPECT_EQ(other.save(), ledger.save());
  expect_equal(other.close({}), ledger.close({}));
  // A reference from before is still to the account, which goes on where it was.
  EXPECT_EQ(account.produced(), (params::UpdateId{.origin = 0, .number = 11}));
  EXPECT_EQ(other.account(0).produced_count(), 11U);
}

TEST(LedgerFile, KeepsAnEmptyLedger) {
  Ledger ledger(2, 2, {0, 1});
  Ledger other(2, 2, {0, 1});
  other.account(0).produced();
  other.restore(ledger.save());
  EXPECT_EQ(other.save(), ledger.save());
}

TEST(LedgerFile, AccountsOfSeveralProcessesComeTogether) {
  Ledger ledger(4, 2, {2, 3});
  fill(ledger);
  Ledger other(4, 2, {2, 3});
  for (int rank = 0; rank < 4; ++rank) other.restore_account(rank, ledger.save_account(rank));
  EXPECT_EQ(other.save(), ledger.save());
  EXPECT_THROW(other.restore_account(0, "{"), UserError);
  EXPECT_EQ(other.save(), ledger.save());
}

std::string refusal(Ledger& ledger, const std::string& text) {
  try {
    ledger.restore(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(LedgerFile, OfAnotherRunIsRefused) {
  Ledger ledger(4, 2, {2, 3});
  const std::string text = Ledger(4, 2, {2}).save();
  EXPECT_EQ(refusal(ledger, text),
            "the ledger of a checkpoint cannot be read: it is of 4 ranks, 2 of them workers, with updates applied at [2]; this run has 4 "
            "ranks, 2 "
            "of them workers, with updates applied at [2,3]. Take another checkpoint, or start anew.");
  EXPECT_NE(refusal(ledger, Ledger(4, 3, {2, 3}).save()), "no refusal");
  EXPECT_NE(refusal(ledger, Ledger(5, 2, {2, 3}).save()), "no refusal");
}

TEST(LedgerFile, IsCheckedAndARefusalChangesNothing) {
  Ledger source(4, 2, {2, 3});
  fill(source);
  Ledger ledger(4, 2, {2, 3});
  ledger.account(0).produced();
  const std::string before = ledger.save();
  const nlohmann::json good = nlohmann::json::parse(source.save());
  const auto expect_refused = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_NE(refusal(ledger, bad.dump()), "no refusal") << pointer << " " << value;
    EXPECT_EQ(ledger.save(), before);
  };
  expect_refused("/format", 2);
  expect_refused("/format", "1");
  expect_refused("/accounts", 3);
  expect_refused("/accounts/1/produced", -1);
  expect_refused("/accounts/1/produced", 2.5);
  expect_refused("/accounts/1/steps", "7");
  expect_refused("/accounts/3", nullptr);
  expect_refused("/accounts/2/applied/0/place", 4);
  expect_refused("/accounts/2/applied/0/updates", nlohmann::json::array({1, 0, 5}));
  expect_refused("/accounts/2/applied/0/updates", nlohmann::json::array({4, 0, 1, 1, 1}));
  expect_refused("/accounts/2/applied/0/updates", nlohmann::json::array({4, 0, 1, 1, 1, 1, 9}));
  expect_refused("/accounts/2/applied/0", nlohmann::json::array());
  expect_refused("/accounts/1/dropped/not finite", 5);
  expect_refused("/accounts/2/version_staleness", nlohmann::json::array({{1, 2, 3}}));
  expect_refused("/accounts/2/version_staleness", nlohmann::json::array({{1, ~std::uint64_t{0}}, {2, 1}}));
  expect_refused("/accounts/1/time/waiting_ns", 1.5);
  expect_refused("/accounts/1/time/waiting_ns", std::uint64_t{1} << 63);
  expect_refused("/accounts/1/time", 1);
  nlohmann::json bad = good;
  bad["accounts"][1].erase("skew");
  EXPECT_NE(refusal(ledger, bad.dump()).find("skew"), std::string::npos);
  for (const char* text : {"", "{", "[]", "3", "null"}) EXPECT_NE(refusal(ledger, text), "no refusal") << text;
  EXPECT_EQ(ledger.save(), before);
  EXPECT_EQ(refusal(ledger, good.dump()), "no refusal");
}

}  // namespace
}  // namespace starling::ledger
