// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Tables that are put together from layers.
#include "starling/run/toml_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "starling/base/error.h"

namespace starling::run {
namespace {

template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(TomlTable, MergesTablesAndReplacesAllElse) {
  const TomlTable base = TomlTable::parse("a.x = 1\na.list = [1, 2]\nb = 'old'\nkept = true\n", "base");
  const TomlTable over = TomlTable::parse("a.list = [3]\na.y = 2.5\nb.now = 'a table'\n", "over");
  EXPECT_EQ(base.merged(over).to_text(), "a.list = [3]\na.x = 1\na.y = 2.5\nb.now = \"a table\"\nkept = true\n");
  EXPECT_EQ(base.to_text(), "a.list = [1, 2]\na.x = 1\nb = \"old\"\nkept = true\n");
}

TEST(TomlTable, ValuesKeepTheirPlace) {
  const TomlTable base = TomlTable::parse("[a]\nx = 1\n", "base.toml");
  const TomlTable over = TomlTable::parse("\n\n[a]\ny = 'no number'\nz = 1\n", "over.toml");
  TomlTable table = base.merged(over).table("a").value();
  EXPECT_EQ(error_of([&] { (void)table.integer("y"); }), "over.toml:4: a.y is a string, but it must be a whole number");
  EXPECT_EQ(error_of([&] { (void)table.boolean("x"); }), "base.toml:2: a.x is an integer, but it must be true or false");
  EXPECT_NE(error_of([&] { table.reject_unknown_keys(); }).find("over.toml:5: there is no key 'a.z'"), std::string::npos);
  EXPECT_EQ(error_of([&] { base.merged(over).locate("a.y", [] { throw UserError("wrong"); }); }), "over.toml:4: wrong");
}

TEST(TomlTable, AFlagHasNoLine) {
  TomlTable table = TomlTable::parse("x = 'text'", "--flag");
  EXPECT_EQ(error_of([&] { (void)table.integer("x"); }), "--flag: x is a string, but it must be a whole number");
}

TEST(TomlTable, LeavesStandInTheOrderOfTheFile) {
  const TomlTable table = TomlTable::parse("z.b = [1]\na = 2\n[m]\nn.o = 'x'\n", "f");
  std::vector<std::string> keys;
  for (const TomlTable::Leaf& leaf : table.leaves()) keys.push_back(leaf.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"z.b", "a", "m.n.o"}));
  EXPECT_EQ(table.leaves()[2].line, 4U);
}

TEST(TomlTable, ChoicesHaveOneElementEach) {
  const TomlTable table = TomlTable::parse("a.b = [1, 0.5, true, 'text', [], ['x', 'y'], {k = 1}]\nother = 1\n", "f");
  std::vector<std::string> texts;
  std::vector<std::string> layers;
  for (const TomlTable::Choice& choice : table.choices("a.b")) {
    texts.push_back(choice.text);
    layers.push_back(choice.layer.to_text());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"1", "0.5", "true", "text", "none", "x, y", "{k = 1}"}));
  EXPECT_EQ(layers, (std::vector<std::string>{"a.b = 1\n", "a.b = 0.5\n", "a.b = true\n", "a.b = \"text\"\n", "a.b = []\n",
                                              "a.b = [\"x\", \"y\"]\n", "a.b.k = 1\n"}));
}

TEST(TomlTable, TextIsReadBackAsItWas) {
  const std::string text =
      "\"a key\".x = \"quote \\\" backslash \\\\ line \\u000a\"\nempty = {}\nfloats = [1.0, 0.1, 1e+30, inf]\nlist = [{a = 1, b = "
      "[true]}]\n";
  EXPECT_EQ(TomlTable::parse(text, "f").to_text(), text);
  EXPECT_EQ(TomlTable::parse("x = 1", "f").to_text("a.b"), "a.b.x = 1\n");
}

TEST(TomlTable, RemovesAndMoves) {
  const TomlTable table = TomlTable::parse("a.b.c = 1\na.d = 2\n", "f");
  EXPECT_EQ(table.without("a.b").to_text(), "a.d = 2\n");
  EXPECT_EQ(table.without("a.b.x.y").to_text(), table.to_text());
  EXPECT_EQ(table.moved("a.b", "x.y").to_text(), "x.y.c = 1\n");
  EXPECT_TRUE(table.contains("a.b.c"));
  EXPECT_FALSE(table.contains("a.b.c.d"));
}

}  // namespace
}  // namespace starling::run
