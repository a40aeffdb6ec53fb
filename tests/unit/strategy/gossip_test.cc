// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/gossip.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/strategy/messages.h"

namespace starling::strategy {
namespace {

// A model that arrives at worker 1, as an update of worker 0 for it.
class MixedStepsTest : public testing::Test {
 protected:
  void arrive(const MixedSteps& model) {
    const std::vector<int> here{1};
    here_.mix(ledger_.account(1), {.id = ledger_.account(0).produced_for(here), .contents = model.contents()});
  }
  double set_staleness() const { return ledger_.close({}).set_staleness.mean(); }
  double version_staleness() const { return ledger_.close({}).version_staleness.mean(); }

  ledger::Ledger ledger_{2, 2, {0, 1}};
  MixedSteps there_{2};
  MixedSteps here_{2};
};

TEST_F(MixedStepsTest, EqualModelsAreNotStale) {
  arrive(there_);
  EXPECT_EQ(set_staleness(), 0);
  EXPECT_EQ(version_staleness(), 0);
}

// B had {g1}, A has {g2}: 2, while the difference in versions is 0.
TEST_F(MixedStepsTest, OneStepEachIsTwoInSetsAndNoneInVersions) {
  there_.step(0);
  here_.step(1);
  arrive(there_);
  EXPECT_EQ(set_staleness(), 2);
  EXPECT_EQ(version_staleness(), 0);
}

TEST_F(MixedStepsTest, AModelThatIsBehindIsStaleByWhatItLacks) {
  for (int i = 0; i < 5; ++i) here_.step(1);
  there_.step(0);
  arrive(there_);
  EXPECT_EQ(set_staleness(), 6);
  EXPECT_EQ(version_staleness(), 4);
}

TEST_F(MixedStepsTest, AModelThatIsAheadIsNotStaleInVersions) {
  for (int i = 0; i < 3; ++i) there_.step(0);
  arrive(there_);
  EXPECT_EQ(set_staleness(), 3);
  EXPECT_EQ(version_staleness(), 0);
}

TEST_F(MixedStepsTest, AMixtureHasTheStepsOfBoth) {
  there_.step(0);
  there_.step(0);
  here_.step(1);
  arrive(there_);
  EXPECT_EQ(here_.contents()[0].prefix(), 2U);
  EXPECT_EQ(here_.contents()[1].prefix(), 1U);
  arrive(there_);  // It brings nothing new now, and lacks one.
  EXPECT_EQ(here_.contents()[0].prefix(), 2U);
  EXPECT_EQ(set_staleness(), (3 + 1) / 2.0);
}

TEST_F(MixedStepsTest, IsFoundAgain) {
  here_.step(0);
  here_.step(1);
  here_.step(1);
  MixedSteps other(2);
  params::StateList from;
  params::StateList to;
  here_.list_state(from);
  other.list_state(to);
  ASSERT_EQ(from.numbers().size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) *to.numbers()[i].value = *from.numbers()[i].value;
  EXPECT_EQ(other.contents(), here_.contents());
}

TEST_F(MixedStepsTest, AModelOfAnotherRunIsABrokenInvariant) { EXPECT_THROW(arrive(MixedSteps(3)), BrokenInvariant); }

TEST(NewMessages, ADuplicateIsKnownByItsNumber) {
  NewMessages messages(2);
  EXPECT_TRUE(messages.is_new({.source = 1, .sequence = 0}));
  EXPECT_FALSE(messages.is_new({.source = 1, .sequence = 0}));
  EXPECT_TRUE(messages.is_new({.source = 0, .sequence = 0}));
  EXPECT_TRUE(messages.is_new({.source = 1, .sequence = 4}));
  EXPECT_FALSE(messages.is_new({.source = 1, .sequence = 3}));
}

}  // namespace
}  // namespace starling::strategy
