// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling converge` as its users run it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "unit/cli/program.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

class ConvergeProgram : public testing::Test {
 protected:
  ConvergeProgram() : folder_(testing::TempDir() + "starling_converge_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ConvergeProgram() override { fs::remove_all(folder_); }

  static void expect_said(const std::string& arguments, const std::string& part) {
    const Ran ran = run("converge " + arguments);
    EXPECT_EQ(ran.code, 0) << arguments << "\n" << ran.output;
    EXPECT_NE(ran.output.find(part), std::string::npos) << arguments << "\n" << ran.output;
  }

  static nlohmann::json last_line(const std::string& arguments) {
    const Ran ran = run("converge " + arguments);
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::size_t end = ran.output.find_last_not_of('\n');
    return nlohmann::json::parse(ran.output.substr(ran.output.rfind('\n', end) + 1), nullptr, false);
  }

  std::string folder_;
};

TEST_F(ConvergeProgram, SaysHowItEnds) {
  expect_said("", "converges to x*: error ");
  expect_said("", " ≤ bound 0.8663\n");
  expect_said("--delays bounded:8 --schedule cyclic", "converges to x*: ");
  expect_said("--delays growing --local-steps 4", "converges to x*: ");
  expect_said("--problem logistic --masks uniform", "error: max over blocks l of |x_l - x*|_2\n");
  expect_said("--problem laplace --dimension 8", "error: max |x_i - x*_i| / w_i\n");
  expect_said("--idle-block 3", "does not converge: block 3 is never updated: its error stays ");
  expect_said("--norm l2", "no bound: disjoint masks can enlarge l2 norms (see --counter-example)");
  expect_said("--step-size 5", "diverges: ");
  expect_said("--iterations 2", "undecided: ");
  expect_said("--seeds 5 --delays bounded:3", "all runs agree with the theory\n");
}

TEST_F(ConvergeProgram, ShowsTheCounterExample) {
  expect_said("--counter-example", "every |x_k| = 1.000000, |sum of E_k x_k| = 1.414214");
  expect_said("--counter-example", "diverges\n");
  const nlohmann::json summary = last_line("--counter-example --json");
  EXPECT_DOUBLE_EQ(summary["combined_l2"].get<double>() * summary["combined_l2"].get<double>(), 2);
}

TEST_F(ConvergeProgram, PrintsTheNumbersAsJson) {
  const nlohmann::json summary = last_line("--delays bounded:4 --local-steps 1,2,3,4 --seeds 2 --json");
  EXPECT_EQ(summary["delays"], "bounded:4");
  EXPECT_EQ(summary["local_steps"], (std::vector<int>{1, 2, 3, 4}));
  ASSERT_EQ(summary["runs"].size(), 2);
  for (const nlohmann::json& run : summary["runs"]) {
    EXPECT_EQ(run["outcome"], "converged");
    EXPECT_LE(run["worst_ratio"].get<double>(), run["bound"].get<double>());
    EXPECT_EQ(run["sweeps"][0]["step"], 0);
    EXPECT_TRUE(run["sweeps"][0]["ratio"].is_null());
    EXPECT_EQ(run["masked_difference"], 0);
  }
  EXPECT_TRUE(last_line("--norm l2 --json")["runs"][0]["bound"].is_null());
}

TEST_F(ConvergeProgram, WritesPlotsAndTables) {
  expect_said("--svg " + folder_ + "/a.svg --csv " + folder_ + "/a.csv", "plot written to ");
  std::stringstream svg;
  svg << std::ifstream(folder_ + "/a.svg").rdbuf();
  EXPECT_NE(svg.str().find("bound, max alpha = 0.8663 per sweep"), std::string::npos);
  EXPECT_NE(svg.str().find("sweep (macro-iteration)"), std::string::npos);
  std::string line;
  std::ifstream csv(folder_ + "/a.csv");
  std::getline(csv, line);
  EXPECT_EQ(line, "step,sweep,error,allowed");
  expect_said("--counter-example --svg " + folder_ + "/b.svg", "plot written to ");
  EXPECT_TRUE(fs::exists(folder_ + "/b.svg"));
}

TEST_F(ConvergeProgram, RefusesWhatDoesNotFit) {
  expect_mistake("converge --problem quadratik",
                 "there is no problem 'quadratik'; there are quadratic, laplace, logistic. Did you mean 'quadratic'?");
  expect_mistake("converge --delays bonded:8", "Did you mean 'bounded:8'?");
  expect_mistake("converge --schedule cyclik", "Did you mean 'cyclic'?");
  expect_mistake("converge --masks unifrom", "Did you mean 'uniform'?");
  expect_mistake("converge --blocks 17", "there are 17 blocks, but there must be 1 to 16");
  expect_mistake("converge --blocks -1", "--blocks");
  expect_mistake("converge --local-steps 1,2", "there are 2 numbers of local steps for 4 blocks");
  expect_mistake("converge --idle-block 9", "the idle block is 9, but with 4 blocks it must be 0 to 3");
  expect_mistake("converge --masks uniform --steps-on block", "need disjoint masks");
  expect_mistake("converge --coupling 1.5", "the coupling is 1.5, but it must be at least 0 and below 1");
  expect_mistake("converge --tolerance 1e-20", "the tolerance is 1e-20, but it must be 1e-12 to 0.5");
  expect_mistake("converge --seeds 2 --svg x.svg", "--svg and --csv show one run, but --seeds is 2");
  expect_mistake("converge --counter-example --csv x.csv", "--csv does not go with --counter-example");
  expect_mistake("converge --dealys none", "Did you mean '--delays'?");
  expect_mistake("converge --svg /nowhere/at/all.svg", "/nowhere/at/all.svg");
}

TEST_F(ConvergeProgram, HelpTeachesWithExamplesThatRun) {
  const Ran help = run("converge --help");
  EXPECT_EQ(help.code, 0);
  std::istringstream lines(help.output);
  int examples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("  starling converge ") != 0 || line.find("--svg") != std::string::npos) continue;
    // What follows two blanks or more explains the example.
    const std::string command = line.substr(11);
    const Ran ran = run(command.substr(0, command.find("  ")));
    EXPECT_EQ(ran.code, 0) << line << "\n" << ran.output;
    ++examples;
  }
  EXPECT_GE(examples, 7);
}

}  // namespace
}  // namespace starling::cli
