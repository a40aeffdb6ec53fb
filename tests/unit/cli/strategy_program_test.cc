// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Many workers as users meet them: `starling strategies`, the flags of `starling train` that belong to strategies, and what it prints.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "unit/cli/program.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;

class StrategyProgram : public testing::Test {
 protected:
  StrategyProgram() : folder_(testing::TempDir() + "starling_strategy_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~StrategyProgram() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // A small model and data set, whose run goes to `name`.
  std::string train(const std::string& name, const std::string& flags) const {
    return "train --model 'dense 8, relu, dense 3' --data blobs:classes=3,samples=600 --epochs 2 --batch 32 --json --out " + path(name) +
           " " + flags;
  }

  static nlohmann::json json_of(const Ran& ran) {
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::size_t end = ran.output.find_last_not_of('\n');
    return nlohmann::json::parse(ran.output.substr(ran.output.rfind('\n', end) + 1), nullptr, false);
  }

  void expect_refused(const std::string& flags, const std::string& part) const {
    expect_mistake(train("refused", flags), part);
    EXPECT_FALSE(fs::exists(path("refused"))) << flags << ": a run was made all the same";
  }

  std::string folder_;
};

std::vector<std::string> names() {
  std::istringstream lines(run("strategies").output);
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) result.push_back(line.substr(0, line.find(' ')));
  return result;
}

TEST_F(StrategyProgram, StrategiesAreListedOnePerLineWithTheNameFirst) {
  EXPECT_EQ(run("strategies").code, 0);
  EXPECT_EQ(names(),
            (std::vector<std::string>{"sequential", "sync", "local-sgd", "fedavg", "ssp", "async", "downpour", "agn", "dc-asgd", "easgd",
                                      "ea-msgd", "ea-wild", "hogwild", "dogwild", "all-to-all", "neighbours", "gosgd", "ad-psgd", "ist"}));
}

TEST_F(StrategyProgram, AStrategyIsExplained) {
  const Ran ran = run("strategies easgd");
  EXPECT_EQ(ran.code, 0);
  for (const char* part : {"easgd: elastic averaging", "rule\n", "c = c + alpha (w_j - c)", "traffic\n", "S messages up with n floats",
                           "at least one (--servers, default 1)", "fp32 only", "the others go on", "--set easgd.NAME=VALUE", "tau = 4",
                           "1 to 1000000000", "order = round-robin", "round-robin or arrival", "Zhang, Choromanska and LeCun 2015"}) {
    EXPECT_NE(ran.output.find(part), std::string::npos) << part << " is missing from\n" << ran.output;
  }
  EXPECT_NE(run("strategies sequential").output.find("It has no options."), std::string::npos);
  EXPECT_NE(run("strategies --codecs").output.find("topk[:RATIO]"), std::string::npos);
  expect_mistake("strategies eagsd", "Did you mean 'easgd'?");
}

TEST_F(StrategyProgram, MistakesAreRefusedBeforeAnythingIsWritten) {
  expect_refused("--strategy asink --workers 2", "there is no strategy 'asink'; there are sequential, sync, ");
  expect_refused("--strategy asink --workers 2", "Did you mean 'async'?");
  expect_refused("--strategy sequential --workers 2", "strategy sequential is for one worker, but there are 2");
  expect_refused("--workers 0", "--workers");
  expect_refused("--workers 2 --servers 1", "strategy sync has no servers, but --servers is 1");
  expect_refused("--workers 2 --strategy async --servers 0", "strategy async needs at least 1 server");
  expect_refused("--workers 2 --strategy async --servers 1000", "there are 1000 servers for a model of 51 parameters");
  expect_refused("--workers 2 --partition lables", "Did you mean 'labels'?");
  expect_refused("--workers 4 --partition labels", "3 classes are not enough for 4 workers");
}

TEST_F(StrategyProgram, SettingsThatDoNotFitAreRefused) {
  const std::string easgd = "--workers 2 --strategy easgd ";
  expect_refused(easgd + "--set easgd.roh=1", "Did you mean 'rho'?");
  expect_refused(easgd + "--set easgd.rho=-1", "easgd.rho is '-1', but it is 0 to 1000000");
  expect_refused(easgd + "--set easgd.tau=1.5", "easgd.tau is '1.5', but it is a whole number, 1 to 1000000000");
  expect_refused(easgd + "--set easgd.order=random", "but it is round-robin or arrival");
  expect_refused(easgd + "--set rho=1", "--set is 'rho=1', but it is given as STRATEGY.OPTION=VALUE");
  expect_refused(easgd + "--set easgd.rho=", "it is given as STRATEGY.OPTION=VALUE");
  expect_refused(easgd + "--set async.staleness_lr=inverse", "but the strategy of this run is easgd: give --strategy async");
  expect_refused("--workers 3 --strategy ea-wild --set ea-wild.group=2", "3 workers can only form groups of 1, 3");
  std::ofstream(path("typo.toml")) << "[strategy]\nname = \"easgd\"\nworkers = 2\n[strategy.options]\nroh = 0.5\n";
  expect_refused("--config " + path("typo.toml"), "typo.toml:5: strategy easgd has no option 'roh'");
}

TEST_F(StrategyProgram, DelaysAndSpeedsThatDoNotFitAreRefused) {
  expect_refused("--workers 2 --delay some:30ms", "it is given as all:TIME, one:TIME or gauss:TIME:DEVIATION");
  expect_refused("--workers 2 --delay all:30", "a time is a number that is not negative with a unit");
  expect_refused("--workers 2 --delay gauss:30ms", "gauss:TIME:DEVIATION");
  expect_refused("--delay one:30ms", "slows worker 1 down, so there must be at least two");
  expect_refused("--workers 2 --speed 1", "--speed is '1', but it is given as RANKS:FACTOR");
  expect_refused("--workers 2 --speed 1:fast", "'fast' is no number");
  expect_refused("--workers 2 --speed 1:0", "a factor must be above 0");
  expect_refused("--workers 2 --speed 7:0.5", "a speed names rank 7, but there are 2 ranks");
  expect_refused("--workers 2 --speed 1:2", "threads cannot run faster than they do");
}

TEST_F(StrategyProgram, CodecsThatDoNotFitAreRefused) {
  expect_refused("--workers 2 --codec topc", "Did you mean 'topk'?");
  expect_refused("--workers 2 --codec topk:7", "topk");
  expect_refused("--codec fp16", "strategy sequential sends nothing");
  expect_refused("--workers 2 --strategy easgd --codec topk", "strategy easgd sends weights, not gradients or differences");
  expect_refused("--workers 2 --strategy local-sgd --codec dgc", "try topk");
  expect_refused("--workers 2 --codec dgc --optimizer adam", "not adam");
}

// Every field of docs/ledger.md, on both fabrics.
TEST_F(StrategyProgram, TheJsonOfTwoWorkersHasTheBooks) {
  for (const std::string fabric : {"threads", "sim"}) {
    for (const std::string strategy : {"sync", "async"}) {
      SCOPED_TRACE(fabric + " " + strategy);
      const nlohmann::json json = json_of(run(train(fabric + strategy, "--workers 2 --strategy " + strategy + " --fabric " + fabric)));
      EXPECT_EQ(json["strategy"], strategy);
      EXPECT_EQ(json["fabric"], fabric);
      EXPECT_EQ(json["workers"], 2);
      EXPECT_EQ(json["servers"], strategy == "async" ? 1 : 0);
      EXPECT_EQ(json["codec"], "fp32");
      EXPECT_EQ(json["partition"], "shared");
      EXPECT_EQ(json["samples"], 1200) << "two epochs of both workers together";
      EXPECT_EQ(json["steps"], 20);
      EXPECT_EQ(json["updates"]["produced"], 40);
      EXPECT_EQ(json["updates"]["applied"], 40);
      EXPECT_EQ(json["updates"]["dropped"], nlohmann::json::object());
      for (const char* measure : {"version", "gradient_sets"}) {
        for (const char* figure : {"mean", "p50", "p95", "max"})
          EXPECT_TRUE(json["staleness"][measure][figure].is_number()) << measure << figure;
      }
      EXPECT_TRUE(strategy == "async" || json["staleness"]["version"]["max"] == 0);
      EXPECT_GT(json["bytes_sent"], 0);
      EXPECT_TRUE(json["idle_fraction"] >= 0 && json["idle_fraction"] <= 1) << json["idle_fraction"];
      EXPECT_TRUE(json.contains("straggler"));
      EXPECT_TRUE(json["skew"]["mean"].is_number() && json["skew"]["max"].is_number());
      ASSERT_EQ(json["workers_time"].size(), 2U);
      for (const nlohmann::json& time : json["workers_time"]) {
        EXPECT_EQ(time["steps"], 20);
        EXPECT_GT(time["compute_seconds"], 0);
        EXPECT_TRUE(time["waiting_seconds"].is_number() && time["communication_seconds"].is_number() && time["rank"].is_number());
      }
      EXPECT_EQ(json["balanced"], true);
      EXPECT_EQ(json["lost_ranks"], nlohmann::json::array());
    }
  }
}

TEST_F(StrategyProgram, SyncGivesTheSameWeightsOnBothFabricsAndInARepeatedRun) {
  const std::string first = json_of(run(train("a", "--workers 3")))["weights_sha256"];
  EXPECT_EQ(json_of(run(train("b", "--workers 3 --fabric sim")))["weights_sha256"], first);
  EXPECT_EQ(json_of(run("train --json --config " + path("a") + "/config.toml --out " + path("c")))["weights_sha256"], first);
}

TEST_F(StrategyProgram, AnAsynchronousRunInSimIsRepeatedAndResumedBitForBit) {
  const std::string flags =
      "--workers 3 --strategy downpour --servers 2 --codec topk:0.2 --fabric sim --speed 1:0.7 --delay gauss:3ms:1ms "
      "--set downpour.n_fetch=3 ";
  const nlohmann::json whole = json_of(run(train("a", flags)));
  EXPECT_EQ(json_of(run("train --json --config " + path("a") + "/config.toml --out " + path("b")))["weights_sha256"],
            whole["weights_sha256"]);
  EXPECT_EQ(run(train("c", flags + "--epochs 1 ")).code, 2) << "a flag that is given twice";
  std::string shorter = train("c", flags);
  shorter.replace(shorter.find("--epochs 2"), 10, "--epochs 1");
  ASSERT_EQ(run(shorter).code, 0);
  const nlohmann::json resumed = json_of(run("train --json --epochs 2 --resume " + path("c")));
  for (const char* field : {"weights_sha256", "test_loss", "seconds", "updates", "staleness", "bytes_sent", "skew", "workers_time"}) {
    EXPECT_EQ(resumed[field], whole[field]) << field;
  }
}

TEST_F(StrategyProgram, ASlowWorkerIsNamed) {
  const nlohmann::json slow = json_of(run(train("a", "--workers 3 --fabric sim --speed 1:0.5")));
  EXPECT_EQ(slow["straggler"]["rank"], 1);
  EXPECT_DOUBLE_EQ(slow["straggler"]["times"], 2);
  // 7 batches of at most 32 samples, 1 ms each, and twice 90 ms on worker 1.
  const nlohmann::json delayed = json_of(run(train("b", "--workers 3 --fabric sim --delay one:90ms")));
  EXPECT_EQ(delayed["straggler"]["rank"], 1);
  EXPECT_GT(delayed["straggler"]["times"], 1.5);
  EXPECT_TRUE(json_of(run(train("c", "--workers 3 --fabric sim --delay all:90ms")))["straggler"].is_null());
}

// The 30 ms are slept in every step: 20 steps on each worker.
TEST_F(StrategyProgram, ADelayOnThreadsIsReal) {
  const nlohmann::json json = json_of(run(train("a", "--workers 2 --strategy async --delay all:30ms --partition dataset")));
  for (const nlohmann::json& time : json["workers_time"]) EXPECT_GE(time["compute_seconds"], 20 * 0.03);
}

TEST_F(StrategyProgram, ARunGoesOnWithOtherWorkersWhereTheStrategyAllowsIt) {
  ASSERT_EQ(run(train("a", "--workers 2 --strategy async")).code, 0);
  const nlohmann::json json = json_of(run("train --resume " + path("a") + " --workers 3 --epochs 3 --json"));
  EXPECT_EQ(json["workers"], 3);
  EXPECT_TRUE(json["balanced"]);
  ASSERT_EQ(run(train("b", "--workers 2 --strategy easgd")).code, 0);
  expect_mistake("train --resume " + path("b") + " --workers 3 --epochs 3", "with strategy easgd every worker has a part of the run");
}

TEST_F(StrategyProgram, ARunGoesOnAsItWasBegun) {
  ASSERT_EQ(run(train("a", "--workers 2 --strategy async")).code, 0);
  const std::string resume = "train --resume " + path("a");
  expect_mistake(resume + " --strategy downpour", "strategy.name is \"downpour\", but was \"async\"");
  expect_mistake(resume + " --servers 2", "strategy.servers is 2");
  expect_mistake(resume + " --codec fp16", "strategy.codec is \"fp16\", but was \"fp32\"");
  expect_mistake(resume + " --partition dataset", "data.partition is \"dataset\", but was \"shared\"");
  expect_mistake(resume + " --set async.staleness_lr=inverse", "strategy.options.staleness_lr is \"inverse\"");
  expect_mistake(resume + " --speed 0:0.5", "speed");
  const nlohmann::json json = json_of(run(resume + " --epochs 3 --json"));
  EXPECT_EQ(json["updates"]["produced"], 60) << "the books of the whole run";
}

// Worker 1 is lost in the middle; the run of an asynchronous strategy goes on, that of a synchronous one says who it was.
TEST_F(StrategyProgram, ALostWorkerIsWrittenOffOrNamed) {
  std::ofstream(path("crash.toml")) << "[fabric]\nname = \"sim\"\n[[sim.crash]]\nrank = 1\npoint = \"step\"\ncount = 7\n";
  const std::string crash = "--config " + path("crash.toml") + " --workers 3 ";
  const nlohmann::json json = json_of(run(train("a", crash + "--strategy async")));
  EXPECT_EQ(json["lost_ranks"], std::vector<int>{1});
  EXPECT_EQ(json["balanced"], true);
  EXPECT_EQ(json["workers_time"][0]["steps"], 14);
  const Ran sync = run(train("b", crash + "--strategy sync"));
  EXPECT_EQ(sync.code, 1) << sync.output;
  EXPECT_NE(sync.output.find("rank 1 was lost"), std::string::npos) << sync.output;
}

}  // namespace
}  // namespace starling::cli
