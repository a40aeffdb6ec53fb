// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/params/layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "starling/base/error.h"

namespace starling::params {
namespace {

TEST(Layout, SlicesLieOneAfterTheOther) {
  Layout layout;
  layout.add("a", {2, 3});
  layout.add("b", {4});
  layout.add("c", {5}, SliceKind::buffer);
  EXPECT_EQ(layout.size(), 15U);
  EXPECT_EQ(layout.parameter_count(), 10U);
  EXPECT_EQ(layout.find("b")->offset, 6U);
  EXPECT_EQ(layout.find("d"), nullptr);
  std::vector<float> flat(15);
  flat[6] = 7;
  EXPECT_EQ(Layout::part(std::span<const float>(flat), *layout.find("b"))[0], 7);
  EXPECT_EQ(Layout::part(std::span(flat), *layout.find("c")).size(), 5U);
}

TEST(Layout, WhatCannotBeIsRefused) {
  Layout layout;
  layout.add("a", {2});
  EXPECT_THROW(layout.add("a", {3}), BrokenInvariant);
  EXPECT_THROW(layout.add("b", {3, 0}), BrokenInvariant);
  layout.add("c", {1}, SliceKind::buffer);
  EXPECT_THROW(layout.add("d", {3}), BrokenInvariant);
}

TEST(Layout, DifferencesNameTheFirstSliceThatDiffers) {
  Layout a;
  a.add("x", {2});
  a.add("y", {3});
  Layout b;
  b.add("x", {2});
  EXPECT_EQ(difference(a, a), "");
  EXPECT_EQ(difference(a, b), "y [3] is missing");
  EXPECT_EQ(difference(b, a), "y [3] is too many");
  b.add("y", {4});
  EXPECT_EQ(difference(a, b), "tensor 2 should be y [3] but is y [4]");
}

}  // namespace
}  // namespace starling::params
