// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What `starling train` leaves in the run directory for those who look at the run later: result.json, norms, snapshots.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "starling/base/sha256.h"
#include "starling/run/evaluation.h"
#include "starling/run/snapshots.h"
#include "unit/cli/program.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RunFiles : public testing::Test {
 protected:
  RunFiles() : folder_(testing::TempDir() + "starling_run_files_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RunFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string train(const std::string& name, const std::string& flags, int epochs = 2) const {
    return "train --model 'dense 8, relu, dense 3' --data blobs:classes=3,samples=600 --batch 32 --fabric sim --epochs " +
           std::to_string(epochs) + " --out " + path(name) + " " + flags;
  }

  json result(const std::string& name) const { return json::parse(std::ifstream(path(name) + "/result.json"), nullptr, false); }

  std::vector<json> metrics(const std::string& name) const {
    std::vector<json> records;
    std::ifstream file(path(name) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) records.push_back(json::parse(line, nullptr, false));
    return records;
  }

  std::string folder_;
};

TEST_F(RunFiles, TheResultIsWhatWasPrinted) {
  const Ran ran = run(train("a", "--workers 3 --strategy async --json"));
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::size_t end = ran.output.find_last_not_of('\n');
  const json result = this->result("a");
  EXPECT_EQ(result, json::parse(ran.output.substr(ran.output.rfind('\n', end) + 1), nullptr, false));
  EXPECT_EQ(result["reason"], "");
  EXPECT_EQ(metrics("a").back()["bytes_sent"], result["bytes_sent"]);

  std::size_t updates = 0;
  double sum = 0;
  for (const json& entry : result["histograms"]["version"]) {
    updates += entry[1].get<std::size_t>();
    sum += entry[0].get<double>() * entry[1].get<double>();
  }
  EXPECT_EQ(updates, result["updates"]["applied"]);
  EXPECT_NEAR(sum / static_cast<double>(updates), result["staleness"]["version"]["mean"].get<double>(), 1e-12);

  std::size_t tested = 0;
  std::size_t right = 0;
  ASSERT_EQ(result["classes"]["confusion"].size(), 3U);
  EXPECT_EQ(result["classes"]["names"].size(), 3U);
  for (std::size_t label = 0; label < 3; ++label) {
    for (std::size_t answer = 0; answer < 3; ++answer) {
      const auto count = result["classes"]["confusion"][label][answer].get<std::size_t>();
      tested += count;
      if (label == answer) right += count;
    }
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(right) / static_cast<double>(tested), result["test_accuracy"].get<double>());
}

TEST_F(RunFiles, ARunThatGoesOnHasNoResultUntilItEnds) {
  ASSERT_EQ(run(train("a", "--workers 2")).code, 0);
  const json before = result("a");
  ASSERT_EQ(run("train --epochs 3 --resume " + path("a")).code, 0);
  const json after = result("a");
  EXPECT_EQ(before["epochs"], 2);
  EXPECT_EQ(after["epochs"], 3);
  EXPECT_FALSE(after["classes"].is_null());
  // Nothing is left to do: the answers are counted all the same.
  ASSERT_EQ(run("train --epochs 3 --resume " + path("a")).code, 0);
  EXPECT_EQ(result("a")["classes"], after["classes"]);
  EXPECT_NE(run("train --epochs 1 --resume " + path("a")).code, 0);
  EXPECT_EQ(result("a")["classes"], after["classes"]) << "a refused continuation removed the result";
}

TEST_F(RunFiles, ARunThatDivergedSaysSo) {
  EXPECT_EQ(run(train("a", "--lr 1e30")).code, 3);
  const json result = this->result("a");
  EXPECT_EQ(result["ending"], "diverged");
  EXPECT_NE(result["reason"].get<std::string>().find("at step "), std::string::npos) << result["reason"];
  EXPECT_TRUE(result["classes"].is_null());
}

TEST_F(RunFiles, AnswersThatAreNumbersHaveNoClasses) {
  ASSERT_EQ(run("train --model quadratic --data quadratic --epochs 1 --lr 0.001 --out " + path("a")).code, 0);
  EXPECT_TRUE(result("a")["classes"].is_null());
}

TEST_F(RunFiles, SnapshotsAreTheFirstWeightsAndSoManyPerEpoch) {
  ASSERT_EQ(run(train("a", "--workers 2 --snapshots 3 --metrics-every 1")).code, 0);
  const std::vector<run::Snapshot> snapshots = run::read_snapshots(path("a"));
  const std::vector<json> records = metrics("a");
  ASSERT_EQ(snapshots.size(), 7U);
  EXPECT_EQ(snapshots[0].step, 0U);
  EXPECT_EQ(snapshots[0].epoch, 0);
  for (std::size_t i = 1; i < snapshots.size(); ++i) {
    const double third = static_cast<double>(i) / 3;
    EXPECT_GE(snapshots[i].epoch, third - 1e-9);
    EXPECT_LT(snapshots[i].epoch, third + 0.12);  // A step is a tenth of an epoch.
    EXPECT_GT(snapshots[i].samples, snapshots[i - 1].samples);
    // The same weights as the metrics of that step speak of.
    for (const json& record : records) {
      if (record["kind"] != "step" || record["step"] != snapshots[i].step) continue;
      EXPECT_NEAR(record["weight_norm"].get<double>(), run::norm(snapshots[i].weights), 1e-9) << "snapshot " << i;
    }
  }
  EXPECT_DOUBLE_EQ(records.back()["weight_norm"].get<double>(), run::norm(snapshots.back().weights));
}

TEST_F(RunFiles, SnapshotsOfARunThatWasResumedAreThoseOfOneThatNeverStopped) {
  for (const std::string strategy : {"sync", "async", "gosgd", "ist"}) {
    const std::string flags = "--workers 2 --snapshots 4 --strategy " + strategy;
    ASSERT_EQ(run(train("whole-" + strategy, flags)).code, 0) << strategy;
    ASSERT_EQ(run(train("parts-" + strategy, flags, 1)).code, 0) << strategy;
    // As if the process had died after a snapshot that the checkpoint does not know.
    std::ofstream(path("parts-" + strategy) + "/snapshots/step-00000019.safetensors") << "half of it";
    ASSERT_EQ(run("train --epochs 2 --resume " + path("parts-" + strategy)).code, 0) << strategy;
    const std::vector<run::Snapshot> whole = run::read_snapshots(path("whole-" + strategy));
    const std::vector<run::Snapshot> parts = run::read_snapshots(path("parts-" + strategy));
    ASSERT_EQ(whole.size(), 9U) << strategy;
    ASSERT_EQ(parts.size(), whole.size()) << strategy;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].step, parts[i].step) << strategy;
      EXPECT_EQ(whole[i].weights, parts[i].weights) << strategy << ", snapshot " << i;
    }
  }
}

// A fast first worker is done long before the others.
TEST_F(RunFiles, TheLastSnapshotIsTheResult) {
  ASSERT_EQ(run(train("a", "--workers 3 --strategy async --speed 1-2:0.3 --partition dataset --checkpoint-every 0 --snapshots 2")).code, 0);
  const std::vector<run::Snapshot> snapshots = run::read_snapshots(path("a"));
  ASSERT_EQ(snapshots.size(), 5U);
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span<const float>(snapshots.back().weights))), result("a")["weights_sha256"]);
  EXPECT_EQ(snapshots.back().samples, result("a")["samples"]);
}

TEST_F(RunFiles, ADamagedSnapshotIsNamed) {
  ASSERT_EQ(run(train("a", "--snapshots 1")).code, 0);
  std::ofstream(path("a") + "/snapshots/step-00000005.safetensors") << "half of it";
  EXPECT_THROW((void)run::read_snapshots(path("a")), std::exception);
  ASSERT_EQ(run(train("b", "")).code, 0);
  try {
    (void)run::read_snapshots(path("b"));
    FAIL() << "there are none";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("--snapshots 3"), std::string::npos) << error.what();
  }
}

TEST_F(RunFiles, DelaysMayStandInAFileAsOnTheCommandLine) {
  std::ofstream(path("one.toml")) << "delay = [\"one:30ms\"]\n[strategy]\nworkers = 3\n";
  ASSERT_EQ(run(train("a", "--config " + path("one.toml"))).code, 0);
  ASSERT_EQ(run(train("b", "--workers 3 --delay one:30ms")).code, 0);
  EXPECT_EQ(result("a")["weights_sha256"], result("b")["weights_sha256"]);
  EXPECT_EQ(result("a")["seconds"], result("b")["seconds"]);
  EXPECT_GT(result("a")["straggler"]["rank"], 0);
  std::ofstream(path("bad.toml")) << "delay = [\"won:30ms\"]\n";
  expect_mistake(train("c", "--config " + path("bad.toml")), "bad.toml:1: delay is 'won:30ms'");
}

}  // namespace
}  // namespace starling::cli
