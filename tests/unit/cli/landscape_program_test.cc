// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling landscape` as its users meet it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "unit/cli/program.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

const std::string kModel = "--model 'dense 8, relu, dense 3' ";
const std::string kData = "--data blobs:classes=3,samples=600 ";

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class LandscapeProgram : public testing::Test {
 protected:
  LandscapeProgram() : folder_(testing::TempDir() + "starling_landscape_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~LandscapeProgram() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  void train(const std::string& name, const std::string& arguments) const {
    const Ran ran = run("train " + arguments + " --out " + path(name));
    ASSERT_EQ(ran.code, 0) << ran.output;
  }

  std::string folder_;
};

TEST_F(LandscapeProgram, AComparisonStandsForItsRunsAndARunCountsOnce) {
  const Ran compared =
      run("compare " + kModel + kData + "--epochs 1 --snapshots 2 --fabric sim --strategies sync,async --workers 2 --out " + path("c"));
  ASSERT_EQ(compared.code, 0) << compared.output;
  const Ran ran = run("landscape " + path("c") + " " + path("c/cells/sync/seed-1/") + " --grid 3");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("2 runs, 6 snapshots"), std::string::npos) << ran.output;
  EXPECT_TRUE(fs::exists(path("c/landscape/report.html")));

  ASSERT_EQ(run("compare " + kModel + kData + "--epochs 1 --fabric sim --strategies sync --workers 2 --out " + path("d")).code, 0);
  expect_mistake("landscape " + path("d"), "run.snapshots = 3");
  expect_mistake("landscape " + path("c") + " --margin nan", "it must be a number");
}

TEST_F(LandscapeProgram, WithoutAReportTheNumbersAreThere) {
  train("a", kModel + kData + "--epochs 1 --snapshots 2");
  std::ofstream(path("a/metrics.jsonl"), std::ios::app) << "garbage{\n";
  const Ran ran = run("landscape " + path("a") + " --grid 3");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("note: there is no report: "), std::string::npos) << ran.output;
  EXPECT_TRUE(fs::exists(path("a/landscape/landscape.csv")));
}

TEST_F(LandscapeProgram, ShowsTwoRunsTogetherAndWritesTheirFiles) {
  train("a", kModel + kData + "--epochs 2 --snapshots 2");
  train("b", kModel + kData + "--epochs 2 --snapshots 2 --workers 2 --strategy async --fabric sim");
  const Ran ran = run("landscape " + path("a") + " " + path("b") + " --grid 5");
  ASSERT_EQ(ran.code, 0) << ran.output;
  for (const char* part : {"2 runs, 10 snapshots", "5 x 5 points", "explained variance", "test loss of snapshots", "written to "}) {
    EXPECT_NE(ran.output.find(part), std::string::npos) << part << "\n" << ran.output;
  }
  const nlohmann::json json = nlohmann::json::parse(contents_of(path("a/landscape/landscape.json")));
  ASSERT_EQ(json["trajectories"].size(), 2u);
  EXPECT_EQ(json["trajectories"][1]["name"], path("b"));
  EXPECT_EQ(json["grid"].size(), 5u);
  // At the end of an epoch a snapshot of the only worker has the loss that the run itself found there.
  std::ifstream metrics(path("a/metrics.jsonl"));
  int compared = 0;
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (!record.contains("test_loss")) continue;
    for (const nlohmann::json& point : json["trajectories"][0]["points"]) {
      if (point["step"] != record["step"]) continue;
      EXPECT_NEAR(point["loss"].get<double>(), record["test_loss"].get<double>(), 1e-9);
      EXPECT_EQ(point["accuracy"], record["test_accuracy"]);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2);
  EXPECT_TRUE(fs::exists(path("a/landscape/landscape.csv")));
  EXPECT_TRUE(fs::exists(path("a/landscape/trajectories.csv")));
}

TEST_F(LandscapeProgram, TheNumberOfJobsChangesNoByte) {
  train("a", kModel + kData + "--epochs 2 --snapshots 3");
  for (const char* jobs : {"1", "2"}) {
    const Ran ran = run("landscape " + path("a") + " --grid 6 --samples 100 --jobs " + jobs + " --out " + path(jobs));
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_NE(ran.output.find("100 samples each"), std::string::npos) << ran.output;
  }
  for (const char* file : {"/landscape.json", "/landscape.csv", "/trajectories.csv"}) {
    EXPECT_EQ(contents_of(path("1") + file), contents_of(path("2") + file)) << file;
    EXPECT_FALSE(contents_of(path("1") + file).empty()) << file;
  }
}

TEST_F(LandscapeProgram, MistakesAreExplained) {
  train("a", kModel + kData + "--epochs 1 --snapshots 2");
  train("none", kModel + kData + "--epochs 1");
  train("other_model", "--model softmax " + kData + "--epochs 1 --snapshots 2");
  train("other_data", kModel + "--data blobs:classes=3,samples=300 --epochs 1 --snapshots 2");
  train("one", kModel + kData + "--epochs 0 --snapshots 2");
  train("still", kModel + kData + "--epochs 1 --snapshots 2 --lr 1e-30");
  const std::string out = " --out " + path("out");
  expect_mistake("landscape " + path("none") + out, "starling train --snapshots 3");
  expect_mistake("landscape " + path("a") + " " + path("none") + out, "starling train --snapshots 3");
  expect_mistake("landscape " + path("a") + " " + path("other_model") + out, "is 'softmax': a landscape shows runs of one model");
  expect_mistake("landscape " + path("a") + " " + path("other_data") + out, "the data set of '");
  expect_mistake("landscape " + path("one") + out, "there is only one snapshot");
  expect_mistake("landscape " + path("still") + out, "snapshots are equal");
  expect_mistake("landscape " + path("nowhere") + out, "nowhere");
  expect_mistake("landscape" + out, "runs");
  expect_mistake("landscape " + path("a") + " --grid 1" + out, "--grid");
  expect_mistake("landscape " + path("a") + " --margin -1" + out, "--margin");
  expect_mistake("landscape " + path("a") + " --jobs 0" + out, "--jobs");
  expect_mistake("landscape " + path("a") + " --samples 0" + out, "--samples");
  EXPECT_FALSE(fs::exists(path("out")));
  expect_mistake("landscape " + path("a") + " --out " + path("a/config.toml"), "config.toml");
}

TEST_F(LandscapeProgram, SnapshotsOfAnotherModelThatWereCopiedInAreRefused) {
  train("a", kModel + kData + "--epochs 1 --snapshots 1");
  train("b", "--model softmax " + kData + "--epochs 1 --snapshots 1");
  fs::remove_all(path("a/snapshots"));
  fs::copy(path("b/snapshots"), path("a/snapshots"));
  expect_mistake("landscape " + path("a"), "it is of another model");
  EXPECT_FALSE(fs::exists(path("a/landscape")));
}

TEST_F(LandscapeProgram, InterruptedItWritesNothingAndSaysSo) {
  train("a", kModel + "--data blobs:classes=3,samples=6000 --epochs 1 --snapshots 2");
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string command =
          "exec " + std::string(STARLING_PROGRAM) + " landscape " + path("a") + " --grid 1000 >" + path("out") + " 2>" + path("err");
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    // The folder is made just before the work begins.
    for (int i = 0; i < 1000 && !fs::exists(path("a/landscape")); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(fs::exists(path("a/landscape")));
    ::kill(child, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_NE(contents_of(path("err")).find("Interrupted: nothing was written."), std::string::npos) << contents_of(path("err"));
    EXPECT_EQ(contents_of(path("out")), "");
    EXPECT_FALSE(fs::exists(path("a/landscape")));
  }
}

}  // namespace
}  // namespace starling::cli
