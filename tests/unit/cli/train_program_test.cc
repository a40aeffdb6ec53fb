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
  std::ofstream(path("slow.toml")) << "[[delay]]\npoint = \"step\"\ntime = \"10ms\"\n";
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

// Everything that has state or draws random numbers: a run of two epochs, and one of one epoch that becomes longer.
TEST_F(TrainProgram, EveryModelAndOptimizerGoesOnBitForBit) {
  const std::string images = "--data fashion-mnist:train=400,test=100 --batch 48 --lr 0.01 --json ";
  std::vector<std::string> kinds{
      "--model lenet5", "--model lenet5 --optimizer adam --warmup 0.7 --two-stage", "--model softmax --optimizer lars --weight-decay 0.01",
      "--model 'conv 4 3x3, batchnorm, relu, maxpool 2, dropout 0.4, dense 10' --optimizer nesterov --clip-norm 1 --batch-warmup 0.5:3",
      "--model mlp:784-200-10 --optimizer adagrad --fabric sim"};
#ifdef STARLING_WITH_TORCH
  kinds.push_back("--model 'torch:conv 4 3x3, batchnorm, relu, maxpool 2, dropout 0.4, dense 10' --optimizer adam");
#endif
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(kinds[i]);
    const std::string whole = "whole" + std::to_string(i);
    const std::string parts = "parts" + std::to_string(i);
    const std::string expected = sha_of(run("train " + images + kinds[i] + " --epochs 2 --out " + whole));
    EXPECT_EQ(sha_of(run("train " + images + kinds[i] + " --epochs 2 --out again" + std::to_string(i))), expected);
    EXPECT_EQ(run("train " + images + kinds[i] + " --epochs 1 --out " + parts).code, 0);
    EXPECT_EQ(sha_of(run("train --json --epochs 2 --resume " + parts)), expected);
  }
}

TEST_F(TrainProgram, AResumedRunMayBecomeLonger) {
  const std::string whole = sha_of(run("train " + kSmall + "--epochs 4 --out whole --json"));
  ASSERT_EQ(run("train " + kSmall + "--epochs 2 --out a").code, 0);
  EXPECT_EQ(sha_of(run("train --resume a --epochs 4 --json")), whole);
  EXPECT_NE(contents_of(path("a/config.toml")).find("epochs = 4"), std::string::npos);
  expect_mistake("train --resume a --epochs 3", "has done 4 epochs already");
  expect_mistake("train --resume ''", "--resume: it is empty");
  expect_mistake("train --data-folder $(printf '/tmp/\\377') --out b", "is not UTF-8");
  EXPECT_FALSE(fs::exists(path("b")));
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
  EXPECT_GT(killed, 0);
}

TEST_F(TrainProgram, ASecondInterruptEndsAtOnce) {
  std::ofstream(path("slow.toml")) << "[[delay]]\npoint = \"step\"\ntime = \"20s\"\n";
  const pid_t child = start("train --config slow.toml " + kSmall + "--out a");
  for (int i = 0; i < 3000 && !fs::exists(path("a/checkpoints/latest")); ++i) std::this_thread::sleep_for(10ms);
  ::kill(child, SIGINT);
  std::this_thread::sleep_for(100ms);
  ::kill(child, SIGINT);
  EXPECT_EQ(wait_for(child).code, 130);
}

TEST_F(TrainProgram, ARunThatLostItsLatestGoesOnFromItsNewestCheckpoint) {
  const std::string whole = sha_of(run("train " + kSmall + "--epochs 3 --json --out whole"));
  ASSERT_EQ(run("train " + kSmall + "--epochs 2 --out a").code, 0);
  fs::remove(path("a/checkpoints/latest"));
  const Ran ran = run("train --resume a --epochs 3 --json");
  EXPECT_NE(ran.errors.find("resuming a from step-00000020"), std::string::npos) << ran.errors;
  EXPECT_EQ(sha_of(ran), whole);
}

// What people may see or not does not end a run; what scripts rely on does not get lost in silence.
TEST_F(TrainProgram, StandardStreamsThatFail) {
  const auto shell = [&](const std::string& arguments) {
    return WEXITSTATUS(std::system(("cd " + folder_ + " && " + STARLING_PROGRAM + " " + arguments).c_str()));
  };
  EXPECT_EQ(shell("train " + kSmall + "--epochs 1 --out a 2>/dev/full >/dev/null"), 0);
  EXPECT_TRUE(fs::exists(path("a/checkpoints/step-00000010")));
  EXPECT_EQ(shell("evaluate a >/dev/full 2>/dev/null"), 1);
  EXPECT_EQ(shell("train " + kSmall + "--epochs 1 --json --out b >/dev/full 2>/dev/null"), 1);
  EXPECT_EQ(shell("train " + kSmall + "--epochs 1 --out c >&- 2>&-"), 0);
  const std::string metrics = contents_of(path("c/metrics.jsonl"));
  EXPECT_EQ(metrics.find("epoch 1/1"), std::string::npos) << "a closed stream must not become a file: " << metrics;
}

TEST_F(TrainProgram, SkippedBatchesLeaveNothingBehindAndHaveAnEnd) {
  // A rate so large that one step leads beyond all numbers; the statistics of batch norm must not keep that.
  const std::string flags = "train --data blobs:samples=600 --lr 1e30 --on-nan skip --epochs 3 --json ";
  const Ran ran = run(flags + "--model 'dense 20, relu, batchnorm, dense 3' --out a");
  EXPECT_EQ(ran.code, 3) << ran.errors;
  EXPECT_NE(ran.errors.find("in a row were skipped"), std::string::npos) << ran.errors;
  EXPECT_EQ(ran.errors.find("--on-nan skip leaves"), std::string::npos) << ran.errors;
}

TEST_F(TrainProgram, OtherDataUnderTheSameNameAreRefused) {
  // Two small idx files, and then two others.
  const auto write_mnist = [&](char pixel) {
    for (const char* set : {"train", "t10k"}) {
      fs::create_directories(path("own"));
      std::string images("\0\0\x08\x03\0\0\0\x14\0\0\0\x02\0\0\0\x02", 16);
      for (int i = 0; i < 80; ++i) images += static_cast<char>(pixel + i);
      std::string labels("\0\0\x08\x01\0\0\0\x14", 8);
      for (int i = 0; i < 20; ++i) labels += static_cast<char>(i % 10);
      std::ofstream(path("own/") + set + "-images-idx3-ubyte", std::ios::binary) << images;
      std::ofstream(path("own/") + set + "-labels-idx1-ubyte", std::ios::binary) << labels;
    }
  };
  write_mnist(1);
  const Ran ran = run("train --model softmax --data mnist --data-folder own --epochs 1 --out a");
  ASSERT_EQ(ran.code, 0) << ran.errors;
  EXPECT_EQ(run("train --resume a --epochs 2").code, 0);
  write_mnist(7);
  expect_mistake("train --resume a --epochs 3", "its data were others");
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
  expect_mistake("train --batch 0", "--batch: Value 0 not in range 1 to");
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
  expect_mistake("train --resume a --lr 0.1", "optimizer.lr is 0.1, but was 0.02");
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
