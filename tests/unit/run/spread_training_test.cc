// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Runs whose ranks live in several processes, beside runs in one.
#include "unit/run/spread_training.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "starling/base/error.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using fabric::Rank;

void expect_no_errors(const SpreadTrained& trained) {
  for (std::size_t rank = 0; rank < trained.errors.size(); ++rank) EXPECT_EQ(trained.errors[rank], "") << "rank " << rank;
}

class SpreadTrainingTest : public testing::Test {
 protected:
  SpreadTrainingTest() : folder_(testing::TempDir() + "starling_spread_training_test_" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
  }
  ~SpreadTrainingTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // As a spread run that writes into a directory, at rank 0.
  SpreadTrained train_into(const std::string& name, const RunConfig& config, SpreadPlan plan = {}) {
    const bool exists = fs::exists(path(name));
    RunDirectory directory = exists ? RunDirectory::open(path(name)) : RunDirectory::create(path(name), config);
    const auto more = plan.options;
    plan.options = [&directory, more](Rank rank, TrainerOptions& options) {
      if (rank == 0) options.directory = &directory;
      if (more) more(rank, options);
    };
    return train_spread(config, plan);
  }

  Checkpoint latest(const std::string& name) const {
    return CheckpointStore(RunDirectory::open(path(name)).checkpoints_path()).read("latest");
  }

  std::string folder_;
};

class LockstepTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, LockstepTest, testing::Values("sync", "local-sgd", "fedavg"), [](const auto& one) {
  std::string name = one.param;
  std::erase(name, '-');
  return name;
});

TEST_P(LockstepTest, HasTheWeightsOfARunInOneProcess) {
  for (const int workers : {1, 2, 3}) {
    const RunConfig config = small_config(GetParam(), workers, "threads");
    const Trained plain = train_small(config);
    const SpreadTrained spread = train_spread(config);
    expect_no_errors(spread);
    for (const Trained& one : spread.ranks) {
      EXPECT_EQ(one.result.weights_sha256, plain.result.weights_sha256) << workers << " workers";
      EXPECT_EQ(one.result.ending, Ending::finished);
      EXPECT_EQ(one.result.epochs, 2);
      EXPECT_EQ(one.result.state.samples, 400U);
      EXPECT_EQ(one.result.state.test_accuracy, plain.result.state.test_accuracy);
    }
    EXPECT_TRUE(spread.result().balance.balanced);
    EXPECT_EQ(spread.result().balance.produced, plain.result.balance.produced);
    EXPECT_EQ(spread.result().balance.applied, plain.result.balance.applied);
    EXPECT_EQ(spread.result().balance.bytes_sent, plain.result.balance.bytes_sent) << "what is said beside a strategy does not count";
    EXPECT_EQ(spread.result().confusion, plain.result.confusion);
    EXPECT_EQ(*spread.result().train_loss, *plain.result.train_loss);
  }
}

struct AnyStrategy {
  std::string name;
  int workers;
};

class EveryStrategyTest : public testing::TestWithParam<AnyStrategy> {};

std::vector<AnyStrategy> every_strategy() {
  std::vector<AnyStrategy> all;
  const strategy::Registry registry = strategy::Registry::built_in();
  for (const strategy::Description& description : registry.all()) {
    for (const int workers : {2, 3}) {
      if (!description.one_worker_only) all.push_back({description.name, workers});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryStrategyTest, testing::ValuesIn(every_strategy()), [](const auto& one) {
  std::string name = one.param.name + "_" + std::to_string(one.param.workers);
  std::erase(name, '-');
  return name;
});

TEST_P(EveryStrategyTest, FinishesWithBalancedBooks) {
  const auto& [name, workers] = GetParam();
  RunConfig config = small_config(name, workers, "threads");
  config.validation = 0.1;
  config.schedule.batch = 2;  // So that there are enough steps for every period.
  if (strategy::Registry::built_in().find(name).needs_servers) config.servers = 2;
  const SpreadTrained trained = train_spread(config);
  expect_no_errors(trained);
  const TrainResult& result = trained.result();
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_TRUE(result.balance.balanced) << to_text(result.balance);
  EXPECT_GT(result.balance.produced, 0U);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_EQ(result.state.workers.size(), static_cast<std::size_t>(workers));
  EXPECT_LT(*result.train_loss, 1.1);
  EXPECT_GT(*result.state.test_accuracy, 0.4);
  std::uint64_t tested = 0;
  for (const auto& row : result.confusion) tested += std::accumulate(row.begin(), row.end(), std::uint64_t{0});
  EXPECT_EQ(tested, 60U);
  for (const Trained& one : trained.ranks) {
    EXPECT_EQ(one.result.ending, Ending::finished);
    EXPECT_EQ(one.result.epochs, 2);
    EXPECT_EQ(one.result.state.steps, result.state.steps);
  }
  for (std::size_t worker = 1; worker < static_cast<std::size_t>(workers); ++worker) {
    EXPECT_EQ(trained.ranks[worker].result.weights_sha256, result.weights_sha256) << "worker " << worker;
  }
}

// Stops when its rank has taken so many steps.
SpreadPlan stop_at(Rank rank, int steps) {
  const auto taken = std::make_shared<int>(0);
  return {.options = [=](Rank own, TrainerOptions& options) {
    if (own == rank) options.stop = [=] { return ++*taken >= steps; };
  }};
}

RunConfig long_config(const std::string& strategy, int workers) {
  RunConfig config = small_config(strategy, workers, "threads");
  config.epochs = 300;
  config.checkpoint_every = config.evaluate_every = 0;
  config.metrics_every = 0;
  return config;
}

// By any rank, in the middle of an epoch, and again after it went on; at last in one process.
TEST_F(SpreadTrainingTest, AStoppedRunGoesOnBitForBit) {
  for (const char* strategy : {"sync", "local-sgd", "fedavg"}) {
    SCOPED_TRACE(strategy);
    const RunConfig config = long_config(strategy, 3);
    const Trained whole = train_small(config);
    const SpreadTrained first = train_into(strategy, config, stop_at(2, 3));
    expect_no_errors(first);
    for (const Trained& one : first.ranks) EXPECT_EQ(one.result.ending, Ending::interrupted);
    EXPECT_LT(first.result().epochs, 300);
    EXPECT_EQ(first.ranks[1].result.epochs, first.result().epochs);
    EXPECT_TRUE(first.result().balance.balanced) << to_text(first.result().balance);

    Checkpoint checkpoint = latest(strategy);
    SpreadPlan plan = stop_at(1, 5);
    plan.checkpoint = &checkpoint;
    const SpreadTrained second = train_into(strategy, config, plan);
    expect_no_errors(second);
    EXPECT_EQ(second.result().ending, Ending::interrupted);
    EXPECT_GT(second.result().state.steps, first.result().state.steps);

    checkpoint = latest(strategy);
    const Trained third = train_small(config, {}, &checkpoint);
    EXPECT_EQ(third.result.weights_sha256, whole.result.weights_sha256);
    EXPECT_EQ(third.result.state.samples, whole.result.state.samples);
    EXPECT_TRUE(third.result.balance.balanced) << to_text(third.result.balance);
    EXPECT_EQ(third.result.balance.produced, whole.result.balance.produced);
  }
}

TEST_F(SpreadTrainingTest, ARunInOneProcessGoesOnInSeveral) {
  for (const char* strategy : {"sync", "local-sgd", "fedavg"}) {
    const RunConfig config = long_config(strategy, 3);
    const Trained whole = train_small(config);
    {
      RunDirectory directory = RunDirectory::create(path(strategy), config);
      std::atomic<int> steps = 0;
      (void)train_small(config, {.directory = &directory, .stop = [&] { return ++steps == 20; }});
    }
    const Checkpoint checkpoint = latest(strategy);
    const SpreadTrained spread = train_into(strategy, config, {.checkpoint = &checkpoint});
    expect_no_errors(spread);
    EXPECT_EQ(spread.result().weights_sha256, whole.result.weights_sha256) << strategy;
    EXPECT_EQ(spread.result().balance.produced, whole.result.balance.produced);
    EXPECT_TRUE(spread.result().balance.balanced);
  }
}

TEST_P(EveryStrategyTest, StopsAndGoesOn) {
  const auto& [name, workers] = GetParam();
  const std::string folder = testing::TempDir() + "starling_spread_stop_" + name + std::to_string(workers) + std::to_string(::getpid());
  fs::remove_all(folder);
  RunConfig config = long_config(name, workers);
  config.epochs = 20;
  {
    RunDirectory directory = RunDirectory::create(folder, config);
    SpreadPlan plan = stop_at(workers - 1, 4);
    const auto stop = plan.options;
    plan.options = [&](Rank rank, TrainerOptions& options) {
      stop(rank, options);
      if (rank == 0) options.directory = &directory;
    };
    const SpreadTrained stopped = train_spread(config, plan);
    expect_no_errors(stopped);
    EXPECT_TRUE(stopped.result().balance.balanced) << to_text(stopped.result().balance);
    for (const Trained& one : stopped.ranks) EXPECT_EQ(one.result.ending, stopped.result().ending);
    const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    EXPECT_EQ(checkpoint.state.steps, stopped.result().state.steps);
    const SpreadTrained finished = train_spread(config, {.checkpoint = &checkpoint});
    expect_no_errors(finished);
    EXPECT_EQ(finished.result().ending, Ending::finished);
    EXPECT_TRUE(finished.result().balance.balanced) << to_text(finished.result().balance);
    EXPECT_EQ(finished.result().epochs, 20);
    const Trained plain = train_small(config, {}, &checkpoint);
    EXPECT_EQ(plain.result.ending, Ending::finished);
    EXPECT_TRUE(plain.result.balance.balanced) << to_text(plain.result.balance);
  }
  fs::remove_all(folder);
}

// A signal of the system may reach any process.
TEST_F(SpreadTrainingTest, ServerAndGeneratorStopARunToo) {
  for (const char* strategy : {"async", "all-to-all"}) {
    const RunConfig config = long_config(strategy, 2);
    const SpreadTrained trained = train_into(strategy, config, stop_at(2, 5));
    expect_no_errors(trained);
    for (const Trained& one : trained.ranks) EXPECT_EQ(one.result.ending, Ending::interrupted) << strategy;
    EXPECT_LT(trained.result().epochs, 300);
    EXPECT_TRUE(trained.result().balance.balanced) << to_text(trained.result().balance);
  }
}

// Two groups, in step inside: they need not halt after the same step.
TEST_F(SpreadTrainingTest, GroupsInStepHaltEachForItself) {
  RunConfig config = long_config("ea-wild", 4);
  config.options = {{"group", "2"}, {"tau", "3"}};
  const SpreadTrained trained = train_into("a", config, stop_at(3, 4));
  expect_no_errors(trained);
  EXPECT_EQ(trained.result().ending, Ending::interrupted);
  EXPECT_LT(trained.result().epochs, 300);
  const std::vector<WorkerState>& workers = trained.result().state.workers;
  EXPECT_EQ(workers[0].progress.number, workers[1].progress.number);
  EXPECT_EQ(workers[2].progress.number, workers[3].progress.number);
}

// The class takes its time, so that things which happen by the clock do happen.
class SlowReplica final : public SmallReplica {
 public:
  explicit SlowReplica(Duration step = 1ms) : step_(step) {}
  double compute_gradient(const data::Batch& batch) override {
    std::this_thread::sleep_for(step_);
    return SmallReplica::compute_gradient(batch);
  }

 private:
  Duration step_;
};

std::unique_ptr<SmallReplica> make_slow(Rank /*rank*/) { return std::make_unique<SlowReplica>(); }

// Who waits at a meeting sees that the others get on, although for longer than the time-out.
TEST_F(SpreadTrainingTest, AFastRankWaitsForOneThatGetsOn) {
  RunConfig config = small_config("gosgd", 2, "threads");
  config.partition = "dataset";
  config.fabric.sim.timeout = 600ms;
  config.schedule.batch = 1;
  const SpreadTrained trained = train_spread(config, {.make_replica = [](Rank rank) -> std::unique_ptr<SmallReplica> {
                                               if (rank == 0) return std::make_unique<SlowReplica>(10ms);
                                               return std::make_unique<SmallReplica>();
                                             }});
  expect_no_errors(trained);
  EXPECT_EQ(trained.result().ending, Ending::finished);
}

class WritingCounter final : public TrainObserver {
 public:
  void checkpoint_written(const std::string& /*path*/) override { ++written; }
  void progressed(const Progress& progress) override { seen = progress; }
  void recorded(const MetricsRecord& record) override { records.push_back(record); }
  int written = 0;
  Progress seen{};
  std::vector<MetricsRecord> records{};
};

TEST_F(SpreadTrainingTest, CheckpointsAreWrittenAfterSomeTime) {
  for (const char* strategy : {"sync", "async", "all-to-all"}) {
    SCOPED_TRACE(strategy);
    RunConfig config = long_config(strategy, 2);
    config.epochs = 40;
    config.checkpoint_interval = 60ms;
    WritingCounter counter;
    const SpreadTrained trained = train_into(strategy, config,
                                             {.options =
                                                  [&](Rank rank, TrainerOptions& options) {
                                                    if (rank == 0) options.observer = &counter;
                                                  },
                                              .make_replica = make_slow});
    expect_no_errors(trained);
    EXPECT_EQ(trained.result().ending, Ending::finished);
    EXPECT_TRUE(trained.result().balance.balanced) << to_text(trained.result().balance);
    EXPECT_GE(counter.written, 3);
  }
}

// Rank 0 hears of the others while they run, and knows them exactly where all meet.
TEST_F(SpreadTrainingTest, RankZeroShowsTheCourseOfAll) {
  RunConfig config = long_config("async", 3);
  config.epochs = 100;
  config.evaluate_every = 0;
  WritingCounter counter;
  const SpreadTrained trained = train_into("a", config,
                                           {.options =
                                                [&](Rank rank, TrainerOptions& options) {
                                                  if (rank == 0) options.observer = &counter;
                                                },
                                            .make_replica = make_slow});
  expect_no_errors(trained);
  EXPECT_GT(counter.seen.samples, 0U);
  EXPECT_GT(static_cast<double>(counter.seen.samples), 1.2 * static_cast<double>(counter.seen.step) * 16) << "only its own are known";
  ASSERT_FALSE(counter.records.empty());
  const MetricsRecord& last = counter.records.back();
  EXPECT_EQ(last.samples, 20000U);
  EXPECT_EQ(last.applications, trained.result().balance.applied);
  EXPECT_EQ(last.bytes_sent, trained.result().balance.bytes_sent);
}

// Every process reads its files by itself.
TEST_F(SpreadTrainingTest, ProcessesThatHaveReadOtherFilesAreNamed) {
  const auto error_of = [](const std::function<void(Rank, RunConfig&, data::Dataset&)>& change) {
    RunConfig config = small_config("sync", 3, "threads");
    config.fabric.sim.timeout = 5s;
    return train_spread(config, {.change = change}).errors[0];
  };
  EXPECT_EQ(error_of({}), "");
  const std::string data = error_of([](Rank rank, RunConfig& /*config*/, data::Dataset& dataset) {
    if (rank == 2) dataset = small_dataset(200, 50);
  });
  EXPECT_NE(data.find("rank 2 has other data ("), std::string::npos) << data;
  const std::string settings = error_of([](Rank rank, RunConfig& config, data::Dataset& /*dataset*/) {
    if (rank == 1) config.schedule.lr = 0.5;
  });
  EXPECT_NE(settings.find("rank 1 has another configuration than rank 0 (at rank 0 optimizer.lr is 0.05, but was 0.5 there)"),
            std::string::npos)
      << settings;
}

// One process sees no checkpoint, as where the run directory is not shared.
TEST_F(SpreadTrainingTest, ProcessesThatBeginElsewhereAreNamed) {
  RunConfig config = small_config("sync", 2, "threads");
  config.epochs = 1;
  expect_no_errors(train_into("a", config));
  const Checkpoint checkpoint = latest("a");
  config.epochs = 2;
  const data::Dataset dataset = small_dataset();
  fabric::FabricOptions options = config.fabric.sim;
  options.ranks = 2;
  fabric::SpreadRanks ranks(options);
  ranks.each([&](fabric::Fabric& fabric) {
    (void)train_one_rank(config, dataset, fabric, {.checkpoint = fabric.local_ranks()[0] == 0 ? &checkpoint : nullptr});
  });
  const std::string message = text_of(ranks.thrown[0]);
  EXPECT_NE(message.find("rank 1 begins at step 0, but rank 0 at step "), std::string::npos) << message;
}

class DivergingTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, DivergingTest, testing::Values("sync", "local-sgd", "async", "ssp", "gosgd", "all-to-all", "hogwild"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(DivergingTest, ANanAnywhereEndsTheRunEverywhere) {
  for (const Rank where : {2, 0}) {
    const SpreadTrained trained = train_spread(long_config(GetParam(), 3), {.make_replica = [&](Rank rank) {
                                                 auto replica = std::make_unique<SmallReplica>();
                                                 if (rank == where) replica->nan_at = 20;
                                                 return replica;
                                               }});
    expect_no_errors(trained);
    for (const Trained& one : trained.ranks) {
      EXPECT_EQ(one.result.ending, Ending::diverged);
      EXPECT_EQ(one.result.reason, "at step 20 the loss is nan");
    }
    EXPECT_TRUE(trained.result().balance.balanced) << to_text(trained.result().balance);
    EXPECT_EQ(trained.result().state.workers[static_cast<std::size_t>(where)].progress.number, 20U);
  }
}

class ThrowingReplica final : public SmallReplica {
 public:
  double compute_gradient(const data::Batch& batch) override {
    if (batch.number == 20) throw std::runtime_error("the disk is full");
    return SmallReplica::compute_gradient(batch);
  }
};

TEST_P(DivergingTest, ARankThatIsLostEndsAll) {
  RunConfig config = long_config(GetParam(), 3);
  config.epochs = 10'000;
  const SpreadTrained trained = train_spread(config, {.make_replica = [](Rank rank) -> std::unique_ptr<SmallReplica> {
                                               if (rank == 1) return std::make_unique<ThrowingReplica>();
                                               return std::make_unique<SmallReplica>();
                                             }});
  EXPECT_EQ(trained.errors[1], "the disk is full");
  for (std::size_t rank = 0; rank < trained.errors.size(); ++rank) {
    if (rank == 1) continue;
    EXPECT_NE(trained.errors[rank].find("rank 1 was lost"), std::string::npos) << rank << ": " << trained.errors[rank];
  }
}

// Also where a run was stopped and went on.
TEST_F(SpreadTrainingTest, EverySampleOfAQueueIsSeenOnceInEveryEpoch) {
  for (const char* strategy : {"async", "dogwild", "all-to-all"}) {
    for (const std::uint64_t checkpoint_every : {0U, 1U}) {
      SCOPED_TRACE(testing::Message() << strategy << ", checkpoint every " << checkpoint_every);
      RunConfig config = small_config(strategy, 3, "threads");
      config.epochs = 4;
      if (std::string(strategy) != "all-to-all") config.partition = "queue";
      config.schedule.batch = 7;
      config.checkpoint_every = checkpoint_every;
      std::mutex mutex;
      std::vector<std::uint32_t> seen;
      SpreadPlan plan = stop_at(1, 3);
      plan.make_replica = [&](Rank /*rank*/) { return std::make_unique<WatchedReplica>(mutex, seen); };
      const std::string name = strategy + std::to_string(checkpoint_every);
      const SpreadTrained first = train_into(name, config, plan);
      expect_no_errors(first);
      EXPECT_EQ(first.result().state.samples, seen.size());
      const Checkpoint checkpoint = latest(name);
      plan = {.make_replica = plan.make_replica, .checkpoint = &checkpoint};
      const SpreadTrained last = train_into(name, config, plan);
      expect_no_errors(last);
      EXPECT_EQ(last.result().epochs, 4);
      EXPECT_TRUE(last.result().balance.balanced) << to_text(last.result().balance);
      std::vector<int> times(small_dataset().train.count);
      for (const std::uint32_t index : seen) ++times[index];
      EXPECT_EQ(times, std::vector<int>(times.size(), 4));
    }
  }
}

TEST_F(SpreadTrainingTest, AFabricOfAnotherSizeIsRefused) {
  fabric::ThreadsFabric fabric({.ranks = 4});
  SmallReplica replica;
  const data::Dataset dataset = small_dataset();
  try {
    const Trainer trainer(small_config("async", 1, "threads"), {&replica}, dataset, {.fabric = &fabric});
    FAIL() << "a fabric of 4 ranks is no place for 2";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("4 ranks, but 1 workers, 1 servers and 0 generators are 2"), std::string::npos)
        << error.what();
  }
}

TEST_F(SpreadTrainingTest, AFabricOfOneProcessMayBeGiven) {
  const RunConfig config = small_config("sync", 2, "threads");
  fabric::FabricOptions options = config.fabric.sim;
  options.ranks = 2;
  fabric::ThreadsFabric fabric(options);
  EXPECT_EQ(train_small(config, {.fabric = &fabric}).result.weights_sha256, train_small(config).result.weights_sha256);
}

TEST_F(SpreadTrainingTest, AProcessHasNoMoreReplicasThanItsRanksNeed) {
  const data::Dataset dataset = small_dataset();
  RunConfig config = small_config("async", 3, "threads");
  config.model = kSmallPerceptron;
  const auto count = [](const std::vector<compute::Replica*>& all) {
    return std::count_if(all.begin(), all.end(), [](auto* one) { return one; });
  };
  for (const Rank rank : {0, 2, 3}) {
    const ReplicaSet replicas(config, dataset, strategy::Registry::built_in(), {rank});
    EXPECT_EQ(replicas.pointers().size(), 3U);
    EXPECT_EQ(count(replicas.pointers()), 1);
    EXPECT_NE(replicas.pointers()[rank < 3 ? static_cast<std::size_t>(rank) : 0], nullptr);
  }
  config.strategy = "ist";
  const ReplicaSet replicas(config, dataset, strategy::Registry::built_in(), {1});
  EXPECT_EQ(count(replicas.pointers()), 1);
  EXPECT_EQ(count(replicas.viewers()), 1);
}

}  // namespace
}  // namespace starling::run
