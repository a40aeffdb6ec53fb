// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "starling/run/toml_table.h"

namespace starling::run {
namespace {

using Flat = std::vector<std::pair<std::string, std::string>>;

TEST(TomlFlattened, NamesEveryValueByItsFullKey) {
  TomlTable table = TomlTable::parse(
      "whole = 3\nbroken = 0.5\nyes = true\ntext = \"a b\"\nlist = [1, 2.5]\nnone = []\n[in.side]\nkey = 1\n[[delay]]\ntime = "
      "\"30ms\"\n[[delay]]\n"
      "time = \"5ms\"\n",
      "file.toml");
  EXPECT_EQ(table.flattened(), (Flat{{"broken", "0.5"},
                                     {"delay[0].time", "30ms"},
                                     {"delay[1].time", "5ms"},
                                     {"in.side.key", "1"},
                                     {"list", "1, 2.5"},
                                     {"none", "none"},
                                     {"text", "a b"},
                                     {"whole", "3"},
                                     {"yes", "true"}}));
  EXPECT_EQ(table.table("in")->flattened(), (Flat{{"in.side.key", "1"}}));
  EXPECT_TRUE(TomlTable::parse("", "file.toml").flattened().empty());
}

}  // namespace
}  // namespace starling::run
