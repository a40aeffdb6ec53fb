// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs that go on with another number of workers.
#include "starling/run/other_workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "unit/run/spread_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;

class OtherWorkersTest : public testing::Test {
 protected:
  OtherWorkersTest() : folder_(testing::TempDir() + "starling_other_workers_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
  }
  ~OtherWorkersTest() override { fs::remove_all(folder_); }

  // Trains in the folder, from its last checkpoint if it has one; stops after so many steps of all workers together.
  TrainResult train(const RunConfig& config, int stop_after = 0) {
    const bool exists = fs::exists(folder_);
    RunDirectory directory = exists ? RunDirectory::open(folder_) : RunDirectory::create(folder_, config);
    const data::Dataset dataset = small_dataset();
    std::vector<std::unique_ptr<SmallReplica>> replicas;
    std::vector<compute::Replica*> pointers;
    for (int worker = 0; worker < config.workers; ++worker) {
      replicas.push_back(make_replica_(worker));
      pointers.push_back(replicas.back().get());
    }
    std::atomic<int> steps = 0;
    Trainer trainer(config, pointers, dataset, {.directory = &directory, .stop = [&] { return ++steps == stop_after; }});
    if (exists) trainer.restore(CheckpointStore(directory.checkpoints_path()).read("latest"));
    trainer.run();
    return trainer.result();
  }

  std::string refusal(const RunConfig& config) {
    try {
      (void)train(config);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  std::vector<int> times_seen() const {
    std::vector<int> times(small_dataset().train.count);
    for (const std::uint32_t index : seen_) ++times[index];
    return times;
  }

  std::string folder_;
  std::mutex mutex_;
  std::vector<std::uint32_t> seen_;
  std::function<std::unique_ptr<SmallReplica>(int worker)> make_replica_ = [this](int /*worker*/) {
    return std::make_unique<WatchedReplica>(mutex_, seen_);
  };
};

// Steps of 3 × 7 samples, then of 2 × 7, then of 5 × 7, none of which divides 200.
TEST_F(OtherWorkersTest, APartialEpochGoesOnWhereItStood) {
  for (const char* fabric : {"threads", "sim"}) {
    fs::remove_all(folder_);
    seen_.clear();
    RunConfig config = small_config("sync", 3, fabric);
    config.epochs = 3;
    config.schedule.batch = 7;
    const TrainResult first = train(config, 12);
    EXPECT_EQ(first.ending, Ending::interrupted);
    config.workers = 2;
    const TrainResult second = train(config, 9);
    EXPECT_EQ(second.ending, Ending::interrupted);
    EXPECT_GT(second.state.steps, first.state.steps);
    EXPECT_GT(second.state.samples, first.state.samples);
    config.workers = 5;
    const TrainResult last = train(config);
    EXPECT_EQ(last.ending, Ending::finished);
    EXPECT_EQ(last.epochs, 3);
    EXPECT_EQ(last.state.samples, 600U);
    EXPECT_EQ(times_seen(), std::vector<int>(200, 3));
    EXPECT_TRUE(last.balance.balanced) << to_text(last.balance);
    EXPECT_GT(last.balance.produced, second.balance.produced);
    EXPECT_GE(last.balance.produced, last.state.steps) << "what the others made is not forgotten";
    EXPECT_GT(last.balance.bytes_sent, second.balance.bytes_sent);
    EXPECT_GT(*last.state.test_accuracy, 0.6);
  }
}

// With a batch that is as many times larger as there are fewer workers, synchronous training has the same course.
TEST_F(OtherWorkersTest, WeightsAndOptimiserGoOn) {
  RunConfig config = small_config("sync", 4, "threads");
  config.schedule.batch = 8;
  config.optimiser.name = "adam";
  const Trained whole = train_small(config);
  (void)train(config, 10);
  config.workers = 2;
  const TrainResult two = train(config);
  EXPECT_EQ(two.state.samples, whole.result.state.samples);
  EXPECT_NEAR(*two.state.test_loss, *whole.result.state.test_loss, 0.1);
}

class AllowedTest : public OtherWorkersTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, AllowedTest,
                         testing::Values("sync", "local-sgd", "fedavg", "ssp", "async", "downpour", "agn", "dc-asgd", "hogwild"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(AllowedTest, GoesOnAtTheEndOfAnEpochWithMoreAndFewer) {
  RunConfig config = small_config(GetParam(), 3, "threads");
  config.optimiser = {.name = "sgd"};
  config.epochs = 1;
  // So that epochs end where rounds do.
  if (std::string(GetParam()) == "local-sgd" || std::string(GetParam()) == "fedavg") config.options = {{"period", "1"}};
  const TrainResult first = train(config);
  config.workers = 4;
  config.epochs = 2;
  const TrainResult second = train(config);
  EXPECT_EQ(second.state.samples, 400U);
  config.workers = 1;
  config.epochs = 3;
  const TrainResult last = train(config);
  EXPECT_EQ(last.ending, Ending::finished);
  EXPECT_EQ(last.state.samples, 600U);
  EXPECT_EQ(times_seen(), std::vector<int>(200, 3));
  EXPECT_TRUE(last.balance.balanced) << to_text(last.balance);
  EXPECT_GE(last.balance.produced, first.balance.produced);
  EXPECT_LT(*last.train_loss, *first.train_loss);
}

TEST_F(OtherWorkersTest, AQueueGoesOnWhereItStood) {
  RunConfig config = small_config("async", 3, "threads");
  config.partition = "queue";
  config.schedule.batch = 7;
  (void)train(config, 15);
  config.workers = 2;
  const TrainResult last = train(config);
  EXPECT_EQ(times_seen(), std::vector<int>(200, 2));
  EXPECT_TRUE(last.balance.balanced) << to_text(last.balance);
}

TEST_F(OtherWorkersTest, OtherPartitionsGoOnAtTheEndOfAnEpochOnly) {
  RunConfig config = small_config("sync", 3, "threads");
  config.partition = "dataset";
  (void)train(config, 6);
  config.workers = 2;
  EXPECT_NE(refusal(config).find("the partition 'dataset'"), std::string::npos) << refusal(config);
  config.workers = 3;
  config.epochs = 2;
  (void)train(config);
  config.workers = 2;
  config.epochs = 3;
  EXPECT_EQ(train(config).ending, Ending::finished);
}

// Asynchronous workers stand at different places but at the end of an epoch; that checkpoint is still there, and the message names it.
TEST_F(OtherWorkersTest, TheLastEndOfAnEpochIsNamedAndThere) {
  RunConfig config = small_config("async", 3, "threads");
  config.epochs = 1;
  (void)train(config);
  config.epochs = 4;
  for (const int stop_after : {5, 4, 5}) (void)train(config, stop_after);
  config.workers = 2;
  const std::string message = refusal(config);
  EXPECT_NE(message.find("stand at different places of the epoch. Take one from the end of an epoch: --checkpoint step-000000"),
            std::string::npos)
      << message;
  const CheckpointStore store(RunDirectory::checkpoints_in(folder_));
  store.go_back_to(store.latest_epoch_end().value());
  const TrainResult last = train(config);
  EXPECT_EQ(last.ending, Ending::finished);
  EXPECT_EQ(last.state.samples, 800U);
}

// As a batch norm does whose statistics are those of the samples a worker has seen.
class StatisticsReplica final : public SmallReplica {
 public:
  explicit StatisticsReplica(float step) : step_(step) {}
  double compute_gradient(const data::Batch& batch) override {
    weights().back() += step_;
    return SmallReplica::compute_gradient(batch);
  }

 private:
  float step_;
};

TEST_F(OtherWorkersTest, BuffersOfTheirOwnGoOnAsTheirMean) {
  RunConfig config = small_config("sync", 3, "threads");
  config.epochs = 1;
  make_replica_ = [](int worker) { return std::make_unique<StatisticsReplica>(static_cast<float>(worker)); };
  (void)train(config);
  const Checkpoint checkpoint = CheckpointStore(RunDirectory::checkpoints_in(folder_)).read("latest");
  ASSERT_FALSE(checkpoint.vectors.layout.slices().empty()) << "the workers' buffers are alike";
  config.workers = 2;
  config.epochs = 2;
  EXPECT_EQ(train(config).ending, Ending::finished);
}

TEST_F(OtherWorkersTest, StrategiesWithWorkersOfTheirOwnRefuse) {
  RunConfig config = small_config("easgd", 2, "threads");
  (void)train(config);
  config.workers = 3;
  config.epochs = 3;
  const std::string message = refusal(config);
  EXPECT_NE(message.find("is of 2 workers and cannot go on with 3: with strategy easgd"), std::string::npos) << message;
  EXPECT_NE(message.find("sync, local-sgd"), std::string::npos) << message;
}

// Momentum that every worker has of its own cannot be dealt anew.
TEST_F(OtherWorkersTest, AStateOfTheirOwnRefuses) {
  RunConfig config = small_config("downpour", 2, "threads");
  (void)train(config);
  config.workers = 3;
  config.epochs = 3;
  EXPECT_NE(refusal(config).find("every worker has a state of its own ('optimizer/"), std::string::npos) << refusal(config);
}

TEST_F(OtherWorkersTest, SeveralProcessesGoOnWithOthers) {
  RunConfig config = small_config("async", 3, "threads");
  config.epochs = 1;
  const TrainResult first = train(config);
  config.workers = 2;
  config.epochs = 2;
  const Checkpoint checkpoint = CheckpointStore(RunDirectory::open(folder_).checkpoints_path()).read("latest");
  const SpreadTrained spread = train_spread(config, {.checkpoint = &checkpoint});
  for (const std::string& error : spread.errors) EXPECT_EQ(error, "");
  EXPECT_EQ(spread.result().state.samples, 400U);
  EXPECT_TRUE(spread.result().balance.balanced) << to_text(spread.result().balance);
  EXPECT_GT(spread.result().balance.produced, first.balance.produced);
}

}  // namespace
}  // namespace starling::run
