// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The pages of docs/strategies say what the code does: every strategy has one, which has a row for each of its options with its default and
// range, and no others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "starling/strategy/registry.h"

namespace starling::strategy {
namespace {

namespace fs = std::filesystem;

const fs::path kPages = fs::path(STARLING_DOCS) / "strategies";

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The options as the table of a page has them: "| `rho` | 0.5 | 0 to 10 | strength |".
std::set<std::string> rows_of(const std::string& page) {
  std::istringstream lines(page.substr(std::min(page.size(), page.find("\n## Options"))));
  std::set<std::string> rows;
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with("## ")) {
    if (line.starts_with("| `")) rows.insert(line.substr(0, line.find(" | ", line.find(" | ", line.find(" | ") + 1) + 1)));
  }
  return rows;
}

TEST(StrategyPages, EveryStrategyHasAPageWithItsOptions) {
  const Registry registry = Registry::built_in();
  const std::string index = contents_of(kPages / "README.md");
  for (const Description& description : registry.all()) {
    SCOPED_TRACE(description.name);
    const std::string page = contents_of(kPages / (description.name + ".md"));
    ASSERT_FALSE(page.empty()) << "there is no page " << kPages / (description.name + ".md");
    std::set<std::string> expected;
    for (const Option& option : description.options) {
      expected.insert(fmt::format("| `{}` | `{}` | {}", option.name, option.standard, option.range()));
    }
    EXPECT_EQ(rows_of(page), expected);
    EXPECT_NE(index.find(fmt::format("[`{0}`]({0}.md)", description.name)), std::string::npos) << "the overview does not lead to it";
    for (const char* section :
         {"## Rule", "## Traffic", "## Options", "## In a checkpoint", "## One worker", "## The paper", "## When to use it"}) {
      EXPECT_NE(page.find(fmt::format("\n{}\n", section)), std::string::npos) << "it has no section " << section;
    }
  }
}

TEST(StrategyPages, EveryPageHasAStrategy) {
  const Registry registry = Registry::built_in();
  for (const fs::directory_entry& entry : fs::directory_iterator(kPages)) {
    if (entry.path().filename() == "README.md") continue;
    EXPECT_NO_THROW((void)registry.find(entry.path().stem().string())) << entry.path();
  }
}

}  // namespace
}  // namespace starling::strategy
