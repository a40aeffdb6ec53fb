// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling train` and `starling evaluate` as their users meet them: results, runs that are interrupted or killed, files that were altered,
// mistakes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "starling/base/random.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A model and a data set that take a moment per epoch.
const std::string kSmall = "--model 'dense 8, relu, dense 3' --data blobs:classes=3,samples=600 ";

struct Ran {
  int code = -1;  // Of a signal, 128 and its number.
  std::string output;
  std::string errors;

  nlohmann::json json() const {
    const std::size_t end = output.find_last_not_of('\n');
    const std::size_t begin = output.rfind('\n', end);
    return nlohmann::json::parse(output.substr(begin == std::string::npos ? 0 : begin + 1), nullptr, false);
  }
};

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TrainProgram : public testing::Test {
 protected:
  TrainProgram() : folder_(testing::TempDir() + "starling_train_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TrainProgram() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Starts the program with the folder of the test as the current one.
  pid_t start(const std::string& arguments) const {
    const std::string command = "cd " + folder_ + " && exec " + STARLING_PROGRAM + " " + arguments + " >out 2>err";
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    return child;
  }

  Ran wait_for(pid_t child) const {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return {.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            .output = contents_of(path("out")),
            .errors = contents_of(path("err"))};
  }

  Ran run(const std::string& arguments) const { return wait_for(start(arguments)); }

  void expect_mistake(const std::string& arguments, const std::string& part) const {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.errors;
    EXPECT_NE(ran.errors.find(part), std::string::npos) << arguments << "\n" << ran.errors;
  }

  static std::string sha_of(const Ran& ran) {
    EXPECT_EQ(ran.code, 0) << ran.errors;
    return ran.json().value("weights_sha256", "");
  }

  // Waits until the program has trained for a while: its metrics have so many lines.
  bool wait_for_metrics(const std::string& run_path, std::ptrdiff_t lines) const {
    for (int i = 0; i < 3000; ++i) {
      const std::string metrics = contents_of(path(run_path) + "/metrics.jsonl");
      if (std::count(metrics.begin(), metrics.end(), '\n') >= lines) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  std::string folder_;
};

TEST_F(TrainProgram, PrintsTheResultAndWritesTheRun) {
  const Ran ran = run("train " + kSmall + "--epochs 2 --batch 32 --seed 5 --out a --json");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const nlohmann::json json = ran.json();
  EXPECT_EQ(json["strategy"], "sequential");
  EXPECT_EQ(json["fabric"], "threads");
  EXPECT_EQ(json["workers"], 1);
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["samples"], 1200);
  EXPECT_EQ(json["steps"], 2 * 19);
  EXPECT_EQ(json["epochs"], 2);
  EXPECT_GT(json["seconds"], 0);
  EXPECT_DOUBLE_EQ(json["samples_per_second"].get<double>(), 1200 / json["seconds"].get<double>());
  EXPECT_TRUE(json["train_loss"].is_number() && json["test_loss"].is_number());
  EXPECT_GT(json["test_accuracy"], 0.5);
  EXPECT_EQ(json["weights_sha256"].get<std::string>().size(), 64U);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_NE(ran.output.find("test accuracy"), std::string::npos);
  EXPECT_NE(ran.errors.find("epoch 1/2  step 19"), std::string::npos) << ran.errors;
  EXPECT_EQ(ran.errors.find('\r'), std::string::npos);  // Not on a terminal.
  std::istringstream metrics(contents_of(path("a/metrics.jsonl")));
  std::vector<nlohmann::json> epochs;
  for (std::string line; std::getline(metrics, line);) epochs.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(epochs.size(), 2U);
  EXPECT_EQ(epochs[1]["test_accuracy"], json["test_accuracy"]);
  EXPECT_EQ(epochs[1]["train_loss"], json["train_loss"]);
}

TEST_F(TrainProgram, TheSameSeedGivesTheSameWeightsAndAnotherDoesNot) {
  const std::string first = sha_of(run("train " + kSmall + "--epochs 1 --out a --json"));
  EXPECT_EQ(sha_of(run("train " + kSmall + "--epochs 1 --out b --json")), first);
  EXPECT_EQ(sha_of(run("train --config a/config.toml --out c --json")), first);
  EXPECT_EQ(sha_of(run("train " + kSmall + "--epochs 1 --fabric sim --out d --json")), first);
  EXPECT_NE(sha_of(run("train --config a/config.toml --seed 2 --out e --json")), first);
}

TEST_F(TrainProgram, FlagsGoOnTopOfTheFile) {
  std::ofstream(path("c.toml"))
      << "[data]\nname = \"blobs:classes=3,samples=60\"\n[model]\nname = \"dense 3\"\n[train]\nepochs = 5\n[run]\nseed = 7\n";
  const nlohmann::json json = run("train --config c.toml --epochs 1 --optimizer adam --lr 0.001 --out a --json").json();
  EXPECT_EQ(json["epochs"], 1);
  EXPECT_EQ(json["seed"], 7);
  const std::string written = contents_of(path("a/config.toml"));
  EXPECT_NE(written.find("name = \"adam\"\nlr = 0.001"), std::string::npos) << written;
  EXPECT_NE(written.find("epochs = 1"), std::string::npos) << written;
}

TEST_F(TrainProgram, RunsGetTheNextFreeNumber) {
  fs::create_directories(path("runs/1"));
  EXPECT_EQ(run("train " + kSmall + "--epochs 0 --json").json()["run"], "runs/2");
  EXPECT_EQ(run("train " + kSmall + "--epochs 0 --json").json()["run"], "runs/3");
}

TEST_F(TrainProgram, AnInterruptedRunSaysHowToGoOnAndGoesOnBitForBit) {
  // A delay in every step leaves time to interrupt it.
  std::ofstream(path("slow.toml")) << "[[delay]]\npoint = \"step\"\ntime = \"3ms\"\n";
  const std::string flags = kSmall +
                            "--optimizer adam --lr 0.001 --schedule cosine --warmup 1 --checkpoint-every 0 --metrics-every 10 "
                            "--evaluate-every 5 --epochs 20 --json ";
  const std::string whole = sha_of(run("train " + flags + "--out whole"));
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(testing::Message() << "signal " << signal);
    const std::string name = "run" + std::to_string(signal);
    const pid_t child = start("train --config slow.toml " + flags + "--out " + name);
    EXPECT_TRUE(wait_for_metrics(name, 3));
    ::kill(child, signal);
    const Ran ran = wait_for(child);
    ASSERT_EQ(ran.code, 130) << ran.errors;
    EXPECT_NE(ran.errors.find("starling train --resume " + name), std::string::npos) << ran.errors;
    EXPECT_EQ(ran.json()["interrupted"], true);
    EXPECT_LT(ran.json()["epochs"], 20);
    EXPECT_EQ(sha_of(run("train --json --resume " + name)), whole);
    EXPECT_EQ(sha_of(run("train --json --resume " + name)), whole);  // Done: nothing is left to do.
  }
}

TEST_F(TrainProgram, AResumedRunMayBecomeLonger) {
  const std::string whole = sha_of(run("train " + kSmall + "--epochs 4 --out whole --json"));
  ASSERT_EQ(run("train " + kSmall + "--epochs 2 --out a").code, 0);
  EXPECT_EQ(sha_of(run("train --resume a --epochs 4 --json")), whole);
  EXPECT_NE(contents_of(path("a/config.toml")).find("epochs = 4"), std::string::npos);
  expect_mistake("train --resume a --epochs 3", "has done 4 epochs already");
}

// Killed at random moments, from before the directory exists to the end; what is left always goes on to the same end.
TEST_F(TrainProgram, AKillAtAnyMomentLeavesARunThatGoesOn) {
  constexpr std::uint64_t kSeed = 2026;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  RandomStream random(kSeed, 0, "kill");
  const std::string flags = kSmall + "--epochs 4 --metrics-every 5 --checkpoint-interval 1ms --json ";
  const auto begin = std::chrono::steady_clock::now();
  const std::string whole = sha_of(run("train " + flags + "--out whole"));
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  int killed = 0;
  for (int i = 0; i < 7; ++i) {
    const std::string name = "run" + std::to_string(i);
    Ran ran;
    for (int kills = 0; kills < 2; ++kills) {
      const bool begun = fs::exists(path(name) + "/config.toml");
      const pid_t child = start(begun ? "train --json --resume " + name : "train " + flags + "--out " + name);
      std::this_thread::sleep_for(length * random.below(1000) / 1000);
      ::kill(child, SIGKILL);
      ran = wait_for(child);
      EXPECT_TRUE(ran.code == 0 || ran.code == 128 + SIGKILL) << ran.errors;
      killed += ran.code == 0 ? 0 : 1;
    }
    const bool begun = fs::exists(path(name) + "/config.toml");
    EXPECT_EQ(sha_of(run(begun ? "train --json --resume " + name : "train " + flags + "--out " + name)), whole) << "run " << i;
  }
  EXPECT_GT(killed, 4);
}

TEST_F(TrainProgram, ADivergedRunExitsWithThreeAndKeepsItsCheckpoint) {
  const Ran ran = run("train " + kSmall + "--epochs 3 --optimizer sgd --lr 1e30 --out a --json");
  EXPECT_EQ(ran.code, 3) << ran.errors;
  EXPECT_NE(ran.errors.find("the run diverged: at step "), std::string::npos) << ran.errors;
  EXPECT_EQ(ran.json()["ending"], "diverged");
  EXPECT_EQ(run("evaluate a").code, 0);
}

TEST_F(TrainProgram, ACheckpointThatIsNotWhatItWasIsRefused) {
  ASSERT_EQ(run("train " + kSmall + "--epochs 2 --out a").code, 0);
  const std::string latest = path("a/checkpoints/step-00000020");
  const std::string weights = latest + "/weights.safetensors";
  const std::string good = contents_of(weights);
  fs::resize_file(weights, good.size() / 2);
  expect_mistake("train --resume a --epochs 3", "weights.safetensors is truncated");
  expect_mistake("evaluate a", "step-00000010 is good: give --checkpoint step-00000010");
  std::string altered = good;
  altered[good.size() - 5] = static_cast<char>(altered[good.size() - 5] ^ 1);
  std::ofstream(weights, std::ios::binary) << altered;
  expect_mistake("train --resume a --epochs 3", "weights.safetensors is altered");
  EXPECT_EQ(run("evaluate a --checkpoint 10").code, 0);
  // Going on from the good one gives what the altered one had been.
  EXPECT_EQ(run("train --resume a --checkpoint step-00000010").code, 0);
  EXPECT_EQ(contents_of(weights), good);
}

TEST_F(TrainProgram, ACheckpointOfAnotherModelOrRunIsRefused) {
  ASSERT_EQ(run("train " + kSmall + "--epochs 1 --out a").code, 0);
  ASSERT_EQ(run("train --model 'dense 9, relu, dense 3' --data blobs:classes=3,samples=600 --epochs 1 --out b").code, 0);
  fs::remove_all(path("a/checkpoints"));
  fs::copy(path("b/checkpoints"), path("a/checkpoints"), fs::copy_options::recursive);
  expect_mistake("train --resume a", "model.name is \"dense 8, relu, dense 3\", but was \"dense 9, relu, dense 3\"");
  expect_mistake("evaluate a", "is of another model");
}

TEST_F(TrainProgram, MistakesExitWithTwoAndAHintAndWriteNothing) {
  std::ofstream(path("typo.toml")) << "[train]\nepoch = 3\n";
  std::ofstream(path("file")) << "in the way";
  expect_mistake("train --config typo.toml", "typo.toml:2: there is no key 'train.epoch'");
  expect_mistake("train --config none.toml", "cannot read the configuration file 'none.toml'");
  expect_mistake("train --optimiser sgd", "Did you mean '--optimizer'?");
  expect_mistake("train --optimizer sdg", "Did you mean 'sgd'?");
  expect_mistake("train --model lenet4", "lenet4");
  expect_mistake("train --data fashion-minst", "Did you mean 'fashion-mnist'?");
  expect_mistake("train --schedule cosin", "--schedule is 'cosin'");
  expect_mistake("train --epochs 1.5", "--epochs");
  expect_mistake("train --epochs -1", "--epochs");
  expect_mistake("train --batch 0", "batch is 0");
  expect_mistake("train --on-nan never", "--on-nan is 'never'");
  expect_mistake("train --checkpoint-interval soon", "--checkpoint-interval is 'soon'");
  expect_mistake("train --checkpoint 3", "--resume");
  expect_mistake("train --resume none", "there is no run in 'none'");
  expect_mistake("evaluate none", "there is no run in 'none'");
  expect_mistake("train " + kSmall + "--out file/a", "cannot make the run directory 'file/a'");
  expect_mistake("train " + kSmall + "--out /proc/a", "cannot make the run directory '/proc/a'");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    EXPECT_TRUE(entry.is_regular_file()) << entry.path() << " was made by a run that could not begin";
  }
}

TEST_F(TrainProgram, ARunIsNotOverwrittenNorChangedInItsCourse) {
  ASSERT_EQ(run("train " + kSmall + "--epochs 1 --out a").code, 0);
  const std::string config = contents_of(path("a/config.toml"));
  expect_mistake("train " + kSmall + "--out a", "go on with it by --resume a, or give another --out");
  expect_mistake("train --resume a --lr 0.1", "optimizer.lr is 0.1, but was 0.05");
  expect_mistake("train --resume a --seed 2", "run.seed is 2, but was 1");
  expect_mistake("train --resume a --out b", "leave --config and --out out");
  EXPECT_EQ(contents_of(path("a/config.toml")), config);
}

TEST_F(TrainProgram, EvaluatePrintsTheReport) {
  const nlohmann::json trained = run("train " + kSmall + "--epochs 3 --out a --json").json();
  const Ran ran = run("evaluate a --json");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_NE(ran.output.find("precision     recall         F1    support"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("weighted mean"), std::string::npos);
  EXPECT_NE(ran.output.find("confusion"), std::string::npos);
  const nlohmann::json json = ran.json();
  EXPECT_EQ(json["test_loss"], trained["test_loss"]);
  EXPECT_EQ(json["test_accuracy"], trained["test_accuracy"]);
  EXPECT_EQ(json["classes"].size(), 3U);
  EXPECT_EQ(json["mean"]["support"], 600);
  EXPECT_EQ(run("evaluate a --data blobs:classes=3,samples=30 --json").json()["samples"], 30);
  expect_mistake("evaluate a --data blobs:classes=4,samples=30", "");
  expect_mistake("evaluate a --checkpoint 77", "there is no checkpoint 'step-00000077'");
}

TEST_F(TrainProgram, DataWithNumbersAsAnswersHasALossOnly) {
  const Ran trained = run("train --data quadratic:dimension=5 --model quadratic --lr 0.01 --epochs 1 --out a --json");
  ASSERT_EQ(trained.code, 0) << trained.errors;
  EXPECT_TRUE(trained.json()["test_accuracy"].is_null());
  const Ran ran = run("evaluate a --json");
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(ran.output.find("accuracy"), std::string::npos);
  EXPECT_TRUE(ran.json()["test_loss"].is_number());
}

}  // namespace
}  // namespace starling::cli
