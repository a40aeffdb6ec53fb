// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/run_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "starling/base/error.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;

// Every key that docs/training.md lists, with a value that is not the default.
constexpr const char* kEveryKey = R"(
[model]
name = "conv 6 5x5, dense \"10\""

[data]
name = "blobs:classes=3"
folder = "some\\where"

[train]
epochs = 7
batch = 32
on_nan = "skip"

[optimizer]
name = "adam"
lr = 0.1
momentum = 0.8
beta1 = 0.7
beta2 = 0.99
epsilon = 1e-8
trust = 0.01
weight_decay = 1e-4
clip_norm = 5
clip_value = 2.5

[schedule]
kind = "multi-step"
power = 2
milestones = [3, 5.5]
gamma = 0.3
final_lr = 0.001
warmup = 1.5
warmup_from = 0.1
batch_warmup = 2
batch_warmup_from = 8
two_stage = true

[run]
seed = 42
out = "runs/b"
evaluate_every = 2
checkpoint_every = 3
checkpoint_interval = "1.5s"
metrics_every = 10

[fabric]
name = "sim"
timeout = "5s"

[[delay]]
point = "step"
time = "gauss:30ms:5ms"

[sim.compute]
time_per_unit = "2ms"

[[sim.crash]]
rank = 0
at = "100s"
)";

void expect_every_key(const RunConfig& config) {
  EXPECT_EQ(config.model, "conv 6 5x5, dense \"10\"");
  EXPECT_EQ(config.data, "blobs:classes=3");
  EXPECT_EQ(config.data_folder, "some\\where");
  EXPECT_EQ(config.epochs, 7U);
  EXPECT_EQ(config.on_nan, OnNan::skip);
  const optim::OptimiserOptions optimiser{.name = "adam",
                                          .momentum = 0.8,
                                          .beta1 = 0.7,
                                          .beta2 = 0.99,
                                          .epsilon = 1e-8,
                                          .trust = 0.01,
                                          .weight_decay = 1e-4,
                                          .clip_norm = 5,
                                          .clip_value = 2.5};
  EXPECT_EQ(config.optimiser, optimiser);
  const optim::ScheduleOptions schedule{.kind = "multi-step",
                                        .lr = 0.1,
                                        .epochs = 7,
                                        .power = 2,
                                        .milestones = {3, 5.5},
                                        .gamma = 0.3,
                                        .final_lr = 0.001,
                                        .warmup_epochs = 1.5,
                                        .warmup_from = 0.1,
                                        .batch = 32,
                                        .batch_warmup_epochs = 2,
                                        .batch_warmup_from = 8,
                                        .two_stage = true};
  EXPECT_EQ(config.schedule_options(), schedule);
  EXPECT_EQ(config.seed(), 42U);
  EXPECT_EQ(config.evaluate_every, 2U);
  EXPECT_EQ(config.checkpoint_every, 3U);
  EXPECT_EQ(config.checkpoint_interval, 1500ms);
  EXPECT_EQ(config.metrics_every, 10U);
  EXPECT_EQ(config.fabric.name, "sim");
  EXPECT_EQ(config.fabric.sim.timeout, 5s);
  EXPECT_EQ(config.fabric.sim.delays.at(0).time.text(), "gauss:0.03s:0.005s");
  EXPECT_EQ(config.fabric.sim.faults.crashes.at(0).time, 100s);
}

TEST(RunConfig, AnEmptyFileIsTheDefaultsOfTheCommand) {
  const RunConfig config = parse_run_config("", "test.toml");
  EXPECT_EQ(config.model, "lenet5");
  EXPECT_EQ(config.data, "fashion-mnist");
  EXPECT_EQ(config.epochs, 3U);
  EXPECT_EQ(config.schedule.batch, 64U);
  EXPECT_EQ(config.optimiser.name, "momentum");
  EXPECT_EQ(config.schedule.lr, 0.02);
  EXPECT_EQ(config.seed(), 1U);
  validate(config);
}

TEST(RunConfig, ReadsEveryKey) {
  const RunConfig config = parse_run_config(kEveryKey, "test.toml");
  expect_every_key(config);
  EXPECT_EQ(config.out, "runs/b");
  validate(config);
}

TEST(RunConfig, WhatIsWrittenReadsBackTheSame) {
  const RunConfig config = parse_run_config(kEveryKey, "test.toml");
  const std::string text = to_toml(config);
  const RunConfig again = parse_run_config(text, "again.toml");
  expect_every_key(again);
  EXPECT_EQ(again.out, "");  // A repeated run gets a directory of its own.
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(to_toml(parse_run_config(to_toml(RunConfig{}), "again.toml")), to_toml(RunConfig{}));
}

TEST(RunConfig, NumbersKeepAllTheirDigits) {
  RunConfig config;
  config.schedule.lr = 0.1 + 0.2;
  config.optimiser.epsilon = 1e-17 / 3;
  config.fabric.sim.seed = (std::uint64_t{1} << 63) - 1;
  const RunConfig again = parse_run_config(to_toml(config), "again.toml");
  EXPECT_EQ(again.schedule.lr, config.schedule.lr);
  EXPECT_EQ(again.optimiser.epsilon, config.optimiser.epsilon);
  EXPECT_EQ(again.seed(), config.seed());
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunConfig, WhatIsWrongIsSaidWithLineAndKey) {
  const auto expect_error = [](const std::string& text, const std::vector<std::string>& parts) {
    const std::string message = message_of([&] { validate(parse_run_config(text, "test.toml")); });
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  };
  expect_error("[trian]\n", {"test.toml:1", "Did you mean 'train'?"});
  expect_error("[train]\nepoch = 3", {"test.toml:2", "train.epoch", "Did you mean 'epochs'?"});
  expect_error("[train]\nepochs = 1.5", {"test.toml:2", "train.epochs", "a whole number"});
  expect_error("[train]\nepochs = -1", {"test.toml:2", "epochs is -1"});
  expect_error("[train]\non_nan = \"stpo\"", {"test.toml:2", "on_nan is 'stpo'", "Did you mean 'stop'?"});
  expect_error("[train]\nbatch = 0", {"batch is 0"});
  expect_error("[optimizer]\nlearning_rate = 1", {"test.toml:2", "optimizer.learning_rate"});
  expect_error("[optimizer]\nname = \"adma\"", {"'adma'", "Did you mean 'adam'?"});
  expect_error("[optimizer]\nlr = -1", {"lr is -1"});
  expect_error("[optimizer]\nlr = \"fast\"", {"test.toml:2", "optimizer.lr is a string", "a number"});
  expect_error("[schedule]\nkind = \"cosin\"", {"'cosin'", "Did you mean 'cosine'?"});
  expect_error("[schedule]\nmilestones = 3", {"test.toml:2", "a list of numbers"});
  expect_error("[schedule]\nmilestones = [\"a\"]", {"test.toml:2", "a list of numbers"});
  expect_error("[run]\ncheckpoint_interval = 60", {"test.toml:2", "run.checkpoint_interval"});
  expect_error("[fabric]\nranks = 4", {"fabric.ranks is 4", "1 workers and 0 servers are 1 ranks"});
  expect_error("[fabric]\nseed = 4\n[run]\nseed = 5", {"test.toml:4", "run.seed is 5, but fabric.seed is 4"});
  expect_error("[fabric]\nname = \"treads\"", {"Did you mean 'threads'?"});
  expect_error("[model]\nname = \"\"", {"the model is ''"});
}

TEST(RunConfig, TheSeedOfTheFabricIsTheSeedOfTheRun) {
  EXPECT_EQ(parse_run_config("[fabric]\nseed = 9", "test.toml").seed(), 9U);
  EXPECT_EQ(parse_run_config("[fabric]\nseed = 9\n[run]\nseed = 9", "test.toml").fabric.sim.seed, 9U);
}

TEST(RunConfig, AConflictIsWhatChangesTheRun) {
  const RunConfig before;
  RunConfig now = before;
  now.epochs = 10;
  now.checkpoint_every = 0;
  now.checkpoint_interval = 1s;
  now.data_folder = "elsewhere";
  now.out = "elsewhere";
  EXPECT_EQ(conflict(before, now), std::nullopt);
  now.schedule.lr = 0.1;
  EXPECT_EQ(conflict(before, now), "optimizer.lr is 0.1, but was 0.02");
  now = before;
  now.data = "mnist";
  EXPECT_EQ(conflict(before, now), "data.name is \"mnist\", but was \"fashion-mnist\"");
  now = before;
  now.fabric.sim.seed = 2;
  EXPECT_EQ(conflict(before, now), "run.seed is 2, but was 1");
  now = before;
  now.fabric.sim.delays.emplace_back();
  EXPECT_EQ(conflict(before, now), "delay.point is \"\", but was not there");
  EXPECT_EQ(conflict(now, before), "it had delay.point = \"\", which is gone");
}

TEST(RunConfig, SchedulesAreReadFromOneWord) {
  optim::ScheduleOptions schedule;
  parse_schedule("polynomial:2", "--schedule", schedule);
  EXPECT_EQ(schedule.kind, "polynomial");
  EXPECT_EQ(schedule.power, 2);
  parse_schedule("multi-step:30,60.5:0.2", "--schedule", schedule);
  EXPECT_EQ(schedule.kind, "multi-step");
  EXPECT_EQ(schedule.milestones, (std::vector<double>{30, 60.5}));
  EXPECT_EQ(schedule.gamma, 0.2);
  parse_schedule("cosine:0.001", "--schedule", schedule);
  EXPECT_EQ(schedule.final_lr, 0.001);
  parse_schedule("constant", "--schedule", schedule);
  EXPECT_EQ(schedule.kind, "constant");
  parse_batch_warmup("5:8", "--batch-warmup", schedule);
  EXPECT_EQ(schedule.batch_warmup_epochs, 5);
  EXPECT_EQ(schedule.batch_warmup_from, 8U);
  for (const char* wrong : {"cosin", "constant:1", "polynomial:x", "multi-step:1,,2", "cosine:1:2", ""}) {
    EXPECT_NE(message_of([&] { parse_schedule(wrong, "--schedule", schedule); }).find("--schedule is '"), std::string::npos) << wrong;
  }
  for (const char* wrong : {"5:0", "5:1.5", "x", "1:2:3", "5:1e300"}) {
    EXPECT_NE(message_of([&] { parse_batch_warmup(wrong, "--batch-warmup", schedule); }).find("--batch-warmup is '"), std::string::npos)
        << wrong;
  }
}

}  // namespace
}  // namespace starling::run
