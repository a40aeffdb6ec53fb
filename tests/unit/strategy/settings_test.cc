// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/settings.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::strategy {
namespace {

Settings made() {
  return {"any",
          {Option::number("rho", 0.5, 0, 10, "strength"), Option::integer("tau", 4, 1, 1000, "period"),
           Option::boolean("reset", true, "begin anew"), Option::choice("order", "arrival", {"round-robin", "arrival", "random"}, "who")}};
}

// What is said when the value is refused; "" if it is taken.
std::string refusal(const std::string& name, const std::string& value) {
  Settings settings = made();
  const auto before = settings.values();
  try {
    settings.set(name, value);
  } catch (const UserError& error) {
    EXPECT_EQ(settings.values(), before) << "a value that was refused must leave nothing behind";
    return error.what();
  }
  return "";
}

TEST(Settings, HaveTheirDefaultsUntilTheyAreSet) {
  Settings settings = made();
  EXPECT_EQ(settings.number("rho"), 0.5);
  EXPECT_EQ(settings.integer("tau"), 4);
  EXPECT_TRUE(settings.boolean("reset"));
  EXPECT_EQ(settings.choice("order"), "arrival");
  settings.set("rho", "1e-3");
  settings.set("tau", "1000");
  settings.set("reset", "false");
  settings.set("order", "random");
  EXPECT_EQ(settings.number("rho"), 1e-3);
  EXPECT_EQ(settings.integer("tau"), 1000);
  EXPECT_FALSE(settings.boolean("reset"));
  EXPECT_EQ(settings.choice("order"), "random");
  EXPECT_EQ(settings.values().at("rho"), "1e-3");
}

TEST(Settings, BothEndsOfARangeAreInIt) {
  for (const char* value : {"0", "10", "0.0", "1e1"}) EXPECT_EQ(refusal("rho", value), "") << value;
  for (const char* value : {"1", "1000"}) EXPECT_EQ(refusal("tau", value), "") << value;
}

TEST(Settings, WhatDoesNotFitIsRefusedWithOptionValueAndRange) {
  EXPECT_EQ(refusal("rho", "-0.1"), "any.rho is '-0.1', but it is 0 to 10: strength");
  EXPECT_EQ(refusal("tau", "0"), "any.tau is '0', but it is a whole number, 1 to 1000: period");
  EXPECT_EQ(refusal("reset", "yes"), "any.reset is 'yes', but it is true or false: begin anew");
  EXPECT_EQ(refusal("order", "Arrival"), "any.order is 'Arrival', but it is round-robin, arrival or random: who");
  for (const char* value : {"10.001", "nan", "inf", "-inf", "", "1x", " 1", "1 ", "0x1", "1e999"})
    EXPECT_NE(refusal("rho", value), "") << value;
  for (const char* value : {"1001", "1.5", "1e2", "", "-1", "99999999999999999999", "four"}) EXPECT_NE(refusal("tau", value), "") << value;
}

TEST(Settings, AnOptionThatDoesNotExistIsRefusedWithThoseThatDo) {
  EXPECT_EQ(refusal("rhoo", "1"), "strategy any has no option 'rhoo'; it has rho, tau, reset, order. Did you mean 'rho'?");
  EXPECT_EQ(refusal("", "1"), "strategy any has no option ''; it has rho, tau, reset, order.");
  Settings none("bare", {});
  try {
    none.set("rho", "1");
    ADD_FAILURE() << "it was taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "strategy bare has no option 'rho'; it has none.");
  }
}

TEST(Settings, AskingForWhatWasNotDescribedIsAMistakeOfTheProgram) {
  const Settings settings = made();
  EXPECT_THROW((void)settings.number("sigma"), BrokenInvariant);
  EXPECT_THROW((void)settings.number("tau"), BrokenInvariant);
  EXPECT_THROW((void)settings.boolean("order"), BrokenInvariant);
  EXPECT_THROW(Settings("wrong", {Option::integer("tau", 0, 1, 5, "period")}), BrokenInvariant) << "a default outside of its range";
}

TEST(Option, SaysItsRange) {
  EXPECT_EQ(Option::number("a", 0.1, 0, 0.999999, "").range(), "0 to 0.999999");
  EXPECT_EQ(Option::integer("a", 1, 1, 1'000'000'000, "").range(), "1 to 1000000000");
  EXPECT_EQ(Option::boolean("a", false, "").range(), "true or false");
  EXPECT_EQ(Option::choice("a", "x", {"x"}, "").range(), "x");
  EXPECT_EQ(Option::choice("a", "x", {"x", "y", "z"}, "").range(), "x, y or z");
}

}  // namespace
}  // namespace starling::strategy
