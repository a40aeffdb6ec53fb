// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "unit/run/small_problem.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : folder_(testing::TempDir() + "starling_trainer_test_" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~TrainerTest() override { fs::remove_all(folder_); }

  static RunConfig config() {
    RunConfig config;
    config.model = "small";
    config.data = "small";
    config.epochs = 3;
    config.schedule.batch = 16;
    config.metrics_every = 5;
    return config;
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  TrainResult train(const RunConfig& run_config, SmallReplica& replica, TrainerOptions options = {},
                    const Checkpoint* checkpoint = nullptr) {
    Trainer trainer(run_config, {&replica}, dataset_, std::move(options));
    if (checkpoint != nullptr) trainer.restore(*checkpoint);
    trainer.run();
    EXPECT_TRUE(trainer.result().balance.balanced);
    return trainer.result();
  }

  TrainResult train_into(const std::string& name, const RunConfig& run_config, std::uint64_t stop_after = 0) {
    SmallReplica replica;
    RunDirectory directory = RunDirectory::create(path(name), run_config);
    std::uint64_t steps = 0;
    return train(run_config, replica, {.directory = &directory, .stop = [&] { return ++steps == stop_after; }});
  }

  TrainResult resume(const std::string& name, const RunConfig& run_config, std::uint64_t stop_after = 0) {
    SmallReplica replica;
    RunDirectory directory = RunDirectory::open(path(name));
    const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    std::uint64_t steps = 0;
    return train(run_config, replica, {.directory = &directory, .stop = [&] { return ++steps == stop_after; }}, &checkpoint);
  }

  // The metrics without times, which are all that may differ between two runs.
  std::string metrics_of(const std::string& name) const {
    std::istringstream lines(read_file(path(name) + "/metrics.jsonl", "metrics"));
    std::string result;
    for (std::string line; std::getline(lines, line);) {
      nlohmann::ordered_json json = nlohmann::ordered_json::parse(line);
      EXPECT_EQ(json.erase("seconds"), 1U);
      EXPECT_EQ(json.erase("samples_per_second"), 1U);
      result += json.dump() + "\n";
    }
    return result;
  }

  std::string folder_;
  data::Dataset dataset_ = small_dataset();
};

TEST_F(TrainerTest, TrainsWithoutADirectory) {
  SmallReplica replica;
  const TrainResult result = train(config(), replica);
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.state.position.number, 3 * 13U);  // 200 samples are 12 batches of 16 and one of 8.
  EXPECT_EQ(result.state.samples, 600U);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_GT(*result.state.test_accuracy, 0.7);
  EXPECT_LT(*result.train_loss, 0.9);
  EXPECT_EQ(result.weights_sha256.size(), 64U);
  EXPECT_EQ(replica.weights().back(), 39);
}

// The same as a plain loop over the parts.
TEST_F(TrainerTest, DoesWhatAPlainLoopDoes) {
  RunConfig run_config = config();
  run_config.optimiser.name = "adam";
  run_config.schedule.kind = "cosine";
  run_config.schedule.warmup_epochs = 1;
  run_config.schedule.two_stage = true;
  run_config.schedule.batch_warmup_epochs = 2;
  run_config.schedule.batch_warmup_from = 3;
  SmallReplica trained;
  (void)train(run_config, trained);

  SmallReplica plain;
  const optim::Schedule schedule(run_config.schedule_options());
  const std::unique_ptr<optim::Optimiser> sgd = optim::make_optimiser({.name = "sgd"}, plain.layout());
  const std::unique_ptr<optim::Optimiser> adam = optim::make_optimiser({.name = "adam"}, plain.layout());
  std::vector<std::uint32_t> indices(dataset_.train.count);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::uint32_t>(i);
  data::BatchOrder order(indices, run_config.seed(), 0);
  while (order.epoch() < 3) {
    const double epoch = static_cast<double>(order.epoch()) + static_cast<double>(order.position().sample) / 200;
    data::Batch batch{.samples = &dataset_.train, .indices = order.next(schedule.batch(epoch))};
    batch.number = order.number();
    (void)plain.compute_gradient(batch);
    (epoch < 1 ? sgd : adam)->step(plain.weights(), plain.gradient(), schedule.lr(epoch));
  }
  EXPECT_TRUE(std::ranges::equal(trained.weights(), plain.weights()));
}

TEST_F(TrainerTest, ThreadsAndSimulatorGiveTheSameWeights) {
  RunConfig run_config = config();
  SmallReplica replica;
  const TrainResult threads = train(run_config, replica);
  run_config.fabric.name = "sim";
  run_config.fabric.sim.compute.time_per_unit = Distribution::constant(2ms);
  SmallReplica other;
  const TrainResult sim = train(run_config, other);
  EXPECT_EQ(sim.weights_sha256, threads.weights_sha256);
  EXPECT_DOUBLE_EQ(sim.state.seconds, 1.2);  // 600 samples of 2 ms; evaluation takes none.
}

// Stopped in both stages and epochs and at the end of an epoch, and again after resuming.
TEST_F(TrainerTest, AResumedRunIsTheSameBitForBit) {
  RunConfig run_config = config();
  run_config.epochs = 2;
  run_config.optimiser.name = "adam";
  run_config.schedule.warmup_epochs = 0.7;
  run_config.schedule.two_stage = true;
  run_config.schedule.kind = "polynomial";
  const TrainResult whole = train_into("whole", run_config);
  EXPECT_EQ(whole.ending, Ending::finished);
  for (std::uint64_t stop_after = 1; stop_after < 26; stop_after += 6) {
    SCOPED_TRACE(testing::Message() << "stopped after " << stop_after);
    const std::string name = "stopped" + std::to_string(stop_after);
    const TrainResult first = train_into(name, run_config, stop_after);
    EXPECT_EQ(first.ending, Ending::interrupted);
    EXPECT_EQ(first.state.position.number, stop_after);
    (void)resume(name, run_config, 2);
    const TrainResult last = resume(name, run_config);
    EXPECT_EQ(last.ending, Ending::finished);
    EXPECT_EQ(last.weights_sha256, whole.weights_sha256);
    EXPECT_EQ(last.train_loss, whole.train_loss);
    EXPECT_EQ(last.state.test_accuracy, whole.state.test_accuracy);
    EXPECT_EQ(last.state.samples, whole.state.samples);
    EXPECT_EQ(metrics_of(name), metrics_of("whole"));
  }
}

// As after kill -9: the metrics have records from after the checkpoint.
TEST_F(TrainerTest, MetricsAreCutBackToTheCheckpoint) {
  (void)train_into("whole", config());
  (void)train_into("killed", config(), 15);
  const std::string metrics = path("killed") + "/metrics.jsonl";
  const std::string more = read_file(metrics, "metrics") + "{\"kind\":\"step\",\"step\":20}\n{\"ki";
  write_file(metrics, {more}, "metrics");
  (void)resume("killed", config());
  EXPECT_EQ(metrics_of("killed"), metrics_of("whole"));
}

TEST_F(TrainerTest, AFinishedRunIsResumedToItsResult) {
  const TrainResult whole = train_into("a", config());
  const TrainResult again = resume("a", config());
  EXPECT_EQ(again.ending, Ending::finished);
  EXPECT_EQ(again.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(again.train_loss, whole.train_loss);
  EXPECT_EQ(again.state.test_loss, whole.state.test_loss);
}

TEST_F(TrainerTest, MoreEpochsGoOnAsIfAskedForFromTheStart) {
  RunConfig longer = config();
  longer.epochs = 5;
  const TrainResult whole = train_into("whole", longer);
  (void)train_into("a", config());
  EXPECT_EQ(resume("a", longer).weights_sha256, whole.weights_sha256);
  EXPECT_EQ(metrics_of("a"), metrics_of("whole"));
}

TEST_F(TrainerTest, ANanStopsTheRunAndTheLastCheckpointIsFromBefore) {
  for (const bool gradient : {false, true}) {
    SmallReplica replica;
    replica.nan_at = 20;
    replica.nan_gradient = gradient;
    const std::string name = gradient ? "gradient" : "loss";
    RunDirectory directory = RunDirectory::create(path(name), config());
    const TrainResult result = train(config(), replica, {.directory = &directory});
    EXPECT_EQ(result.ending, Ending::diverged);
    EXPECT_EQ(result.reason, gradient ? "at step 20 the gradient is not finite" : "at step 20 the loss is nan");
    const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    EXPECT_EQ(checkpoint.state.position.number, 13U);
    EXPECT_TRUE(all_finite(checkpoint.weights.values));
  }
}

// The step that ruins the weights is the last of an epoch, so that no further loss shows it before the checkpoint.
TEST_F(TrainerTest, WeightsThatAreNotFiniteAreNoCheckpoint) {
  SmallReplica replica;
  RunConfig run_config = config();
  run_config.epochs = 1;
  RunDirectory directory = RunDirectory::create(path("a"), run_config);
  std::uint64_t steps = 0;
  const TrainResult result = train(run_config, replica, {.directory = &directory, .stop = [&] {
                                                           if (++steps == 13) replica.weights()[0] = std::numeric_limits<float>::infinity();
                                                           return false;
                                                         }});
  EXPECT_EQ(result.ending, Ending::diverged);
  EXPECT_EQ(result.reason, "at step 13 a weight is not finite");
  EXPECT_EQ(CheckpointStore(directory.checkpoints_path()).read("latest").state.position.number, 0U);
}

TEST_F(TrainerTest, ANanMayBeSkippedAndIsCounted) {
  SmallReplica replica;
  replica.nan_at = 20;
  replica.once = true;
  RunConfig run_config = config();
  run_config.on_nan = OnNan::skip;
  const TrainResult result = train(run_config, replica);
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.state.skipped, 1U);
  EXPECT_EQ(result.state.samples, 600U - 16U);
}

TEST_F(TrainerTest, ACheckpointThatDoesNotBelongIsRefused) {
  (void)train_into("a", config(), 5);
  const Checkpoint checkpoint = CheckpointStore(path("a") + "/checkpoints").read("latest");
  const auto refusal = [&](const RunConfig& run_config, int inputs) -> std::string {
    SmallReplica replica(inputs);
    Trainer trainer(run_config, {&replica}, dataset_, {});
    try {
      trainer.restore(checkpoint);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(config(), kInputs), "accepted");
  EXPECT_NE(refusal(config(), 5).find("another model (softmax regression): tensor 1 should be weight [3, 5] but is weight [3, 4]"),
            std::string::npos);
  RunConfig other = config();
  other.fabric.sim.seed = 2;
  EXPECT_NE(refusal(other, kInputs).find("run.seed is 2, but was 1"), std::string::npos);
  other = config();
  other.data = "large";
  EXPECT_NE(refusal(other, kInputs).find("data.name is \"large\", but was \"small\""), std::string::npos);
  dataset_ = small_dataset(50);
  EXPECT_NE(refusal(config(), kInputs).find("its data were others ("), std::string::npos);
}

TEST_F(TrainerTest, CheckpointsComeByEpochAndByTime) {
  struct Counter final : TrainObserver {
    std::vector<std::string> names;
    void checkpoint_written(const std::string& path) override { names.push_back(fs::path(path).filename()); }
  };
  RunConfig run_config = config();
  run_config.fabric.name = "sim";  // 1 ms per sample: an epoch takes 200 ms.
  run_config.checkpoint_every = 2;
  run_config.checkpoint_interval = Duration::zero();
  const auto names_of = [&](const std::string& name) {
    SmallReplica replica;
    RunDirectory directory = RunDirectory::create(path(name), run_config);
    Counter counter;
    (void)train(run_config, replica, {.directory = &directory, .observer = &counter});
    return counter.names;
  };
  EXPECT_EQ(names_of("epochs"), (std::vector<std::string>{"step-00000000", "step-00000026", "step-00000039"}));
  run_config.checkpoint_every = 0;
  run_config.checkpoint_interval = 250ms;
  EXPECT_EQ(names_of("times"), (std::vector<std::string>{"step-00000000", "step-00000017", "step-00000034", "step-00000039"}));
}

TEST_F(TrainerTest, TheObserverHearsOfProgressAndEpochs) {
  struct Listener final : TrainObserver {
    std::vector<Progress> progress;
    std::vector<Progress> epochs;
    void progressed(const Progress& now) override { progress.push_back(now); }
    void epoch_ended(const Progress& now) override { epochs.push_back(now); }
  };
  RunConfig run_config = config();
  run_config.fabric.name = "sim";
  Listener listener;
  SmallReplica replica;
  (void)train(run_config, replica, {.observer = &listener});
  ASSERT_EQ(listener.epochs.size(), 3U);
  EXPECT_EQ(listener.epochs[1].epoch, 2);
  EXPECT_TRUE(listener.epochs[1].test_accuracy.has_value());
  EXPECT_DOUBLE_EQ(listener.epochs[1].samples_per_second, 1000);
  EXPECT_DOUBLE_EQ(listener.epochs[1].seconds_left, 0.2);
  EXPECT_EQ(listener.progress.size(), 2U);  // 600 ms, at most one every 250 ms.
}

TEST_F(TrainerTest, ARunIsNeverOverwrittenAndHasOneProcess) {
  (void)train_into("a", config(), 1);
  try {
    (void)RunDirectory::create(path("a"), config());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("go on with it by --resume " + path("a")), std::string::npos) << error.what();
  }
  const RunDirectory first = RunDirectory::open(path("a"));
  EXPECT_THROW((void)RunDirectory::open(path("a")), UserError);
  EXPECT_THROW((void)RunDirectory::open(path("none")), UserError);
  EXPECT_EQ(to_toml(RunDirectory::read_config(path("a") + "/")), to_toml(config()));
}

TEST(AllFinite, FindsOneAmongMany) {
  std::vector<float> values(1001, std::numeric_limits<float>::max());
  EXPECT_TRUE(all_finite(values));
  EXPECT_TRUE(all_finite({}));
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{517}, std::size_t{1000}}) {
      std::vector<float> copy = values;
      copy[place] = bad;
      EXPECT_FALSE(all_finite(copy));
    }
  }
}

}  // namespace
}  // namespace starling::run
