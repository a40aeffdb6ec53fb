// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/rank_set.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::fabric {
namespace {

TEST(RankSet, ReadsItsForms) {
  const RankSet set = RankSet::parse("0,2-4", "ranks");
  for (Rank rank = 0; rank < 6; ++rank) EXPECT_EQ(set.contains(rank), rank == 0 || (rank >= 2 && rank <= 4)) << rank;
  EXPECT_TRUE(RankSet::parse("all", "ranks").contains(999));
  EXPECT_TRUE(RankSet().contains(0));
  EXPECT_FALSE(RankSet({3}).contains(2));
}

TEST(RankSet, RejectsOthers) {
  for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "1;2"}) EXPECT_THROW(RankSet::parse(text, "ranks"), UserError) << text;
}

TEST(RankSet, KnowsWhichFabricsItFits) {
  EXPECT_NO_THROW(RankSet::parse("0-3", "x").validate(4, "x"));
  EXPECT_THROW(RankSet::parse("0-4", "x").validate(4, "x"), UserError);
  EXPECT_NO_THROW(RankSet().validate(1, "x"));
}

}  // namespace
}  // namespace starling::fabric
