// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The program as its users meet it: output, exit codes, errors that say what to do.
#include "unit/cli/program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace starling::cli {
namespace {

std::string temporary(const std::string& name) { return testing::TempDir() + "starling_program_test_" + name; }

TEST(Program, HelpTeachesAndVersionIsPrinted) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("--help").output.find("collective"), std::string::npos);
  EXPECT_NE(run("collective --help").output.find("Example:"), std::string::npos);
  EXPECT_EQ(run("--version").output.find("starling "), 0U);
}

TEST(Program, MistakesExitWithTwoAndAHint) {
  expect_mistake("", "subcommand is required");
  expect_mistake("colective", "there is no command 'colective'. Did you mean 'collective'?");
  expect_mistake("collective --rank 3", "Did you mean '--ranks'?");
  expect_mistake("collective --ranks 0", "--ranks");
  expect_mistake("collective all-reduced", "Did you mean 'all-reduce'?");
  expect_mistake("collective --algorithm rign", "Did you mean 'ring'?");
  expect_mistake("collective --fabric treads", "Did you mean 'threads'?");
  expect_mistake("collective barrier --algorithm ring", "barrier has no algorithm 'ring'");
  expect_mistake("collective --floats -1", "--floats");
  expect_mistake("collective --seed 99999999999999999999", "--seed");
  expect_mistake("collective --seed 1.5", "--seed");
  expect_mistake("collective --latency 5", "--latency is '5'");
  expect_mistake("collective --config /nonexistent.toml", "cannot read the configuration file '/nonexistent.toml'");
  expect_mistake("collective --fabric threads --trace x.json", "--fabric sim");
  expect_mistake("collective --algorithm ring --trace /nonexistent/x.json", "cannot write the trace");
}

TEST(Program, ABadOptionLeavesAnExistingTraceAlone) {
  const std::string path = temporary("kept.json");
  std::ofstream(path) << "precious";
  expect_mistake("collective --algorithm ring --config /nonexistent.toml --trace " + path, "cannot read");
  expect_mistake("collective bogus --algorithm ring --trace " + path, "bogus");
  expect_mistake("collective barrier --algorithm ring --trace " + path, "barrier has no algorithm");
  std::string kept;
  std::ifstream(path) >> kept;
  EXPECT_EQ(kept, "precious");
  std::filesystem::remove(path);
}

TEST(Program, JsonIsTheLastLineAndSaysWhatTheTableSays) {
  const Ran ran = run("collective --ranks 8 --floats 8000 --latency 100us --bandwidth 1GB/s --algorithm ring,direct --json");
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::size_t last = ran.output.rfind('\n', ran.output.size() - 2) + 1;
  const nlohmann::json json = nlohmann::json::parse(ran.output.substr(last));
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_EQ(json["results"][0]["algorithm"], "ring");
  EXPECT_DOUBLE_EQ(json["results"][0]["seconds"].get<double>(), 14 * 104e-6);
  EXPECT_EQ(json["results"][0]["bytes_sent"], 14 * 4000);
  EXPECT_EQ(json["results"].size(), 2U);
}

TEST(Program, TracesAreTheSameEveryTime) {
  const std::string config = temporary("config.toml");
  std::ofstream(config) << "[fabric]\nname = \"sim\"\nranks = 5\n[sim.network]\njitter = \"exponential:20us\"\n";
  std::string traces[2];
  for (std::string& trace : traces) {
    const std::string path = temporary("trace.json");
    ASSERT_EQ(run("collective --algorithm ring --config " + config + " --trace " + path).code, 0);
    std::ifstream in(path);
    trace.assign(std::istreambuf_iterator<char>(in), {});
    std::filesystem::remove(path);
  }
  EXPECT_TRUE(nlohmann::json::accept(traces[0]));
  EXPECT_EQ(traces[0], traces[1]);
  std::filesystem::remove(config);
}

TEST(Program, AFaultThatStopsTheRunExitsWithOneAndNamesTheRank) {
  const std::string config = temporary("crash.toml");
  std::ofstream(config) << "[fabric]\nname = \"sim\"\nranks = 3\n[[sim.crash]]\nrank = 1\nat = \"1us\"\n";
  const Ran ran = run("collective --algorithm ring --config " + config);
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.output.find("rank 1 crashed"), std::string::npos) << ran.output;
  std::ofstream(config) << "[fabric]\nname = \"sim\"\nranks = 3\n[[sim.drop]]\nprobability = 1\n";
  const Ran stuck = run("collective --algorithm ring --config " + config);
  EXPECT_EQ(stuck.code, 1);
  EXPECT_NE(stuck.output.find("deadlock at 0 ns: 3 ranks wait"), std::string::npos) << stuck.output;
  std::filesystem::remove(config);
}

}  // namespace
}  // namespace starling::cli
