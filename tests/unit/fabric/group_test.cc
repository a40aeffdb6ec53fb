// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/group.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::fabric {
namespace {

TEST(Group, KnowsItsMembersInOrder) {
  const Group group({5, 2, 9}, 3);
  EXPECT_EQ(group.size(), 3);
  EXPECT_EQ(group[1], 2);
  EXPECT_EQ(group.index_of(9), 2);
  EXPECT_EQ(group.index_of(4), std::nullopt);
  EXPECT_EQ(group.context(), 3);
}

TEST(Group, WorldIsEverybody) {
  const Group world = Group::world(4);
  for (Rank rank = 0; rank < 4; ++rank) EXPECT_EQ(world.index_of(rank), rank);
  EXPECT_EQ(world.index_of(4), std::nullopt);
  EXPECT_EQ(world.index_of(-1), std::nullopt);
  EXPECT_EQ(Group({3, 4, 5}).index_of(4), 1);
  EXPECT_EQ(Group({4, 3}).index_of(3), 1);
}

TEST(Group, IsEqualByMembersAndContext) {
  EXPECT_EQ(Group({1, 2}), Group({1, 2}));
  EXPECT_NE(Group({1, 2}), Group({2, 1}));
  EXPECT_NE(Group({1, 2}), Group({1, 2}, 1));
}

TEST(Group, RefusesARankTwice) {
  EXPECT_THROW(Group({1, 2, 1}), UserError);
  EXPECT_THROW(Group({-1, 2}), UserError);
}

}  // namespace
}  // namespace starling::fabric
