// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Batches that nobody owns in advance: the stream itself, and runs that take from it, directly (queue) or through a generator (all-to-all).
#include "starling/run/batch_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "starling/base/error.h"
#include "starling/data/partition.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

std::vector<std::uint32_t> first_numbers(std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

TEST(BatchStream, GivesEverySampleOnceInAnEpochAndPausesWhenToldTo) {
  const optim::Schedule schedule({.epochs = 2, .batch = 7});
  std::uint64_t limit = 3;
  BatchStream stream(first_numbers(20), 1, schedule, [&](const BatchStream::Position& position) { return position.number < limit; });
  std::multiset<std::uint32_t> seen;
  std::vector<std::size_t> sizes;
  while (const auto batch = stream.next()) {
    seen.insert(batch->indices.begin(), batch->indices.end());
    sizes.push_back(batch->indices.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{7, 7, 6}));
  const std::vector<std::uint32_t> all = first_numbers(20);
  EXPECT_EQ(seen, std::multiset<std::uint32_t>(all.begin(), all.end()));
  EXPECT_EQ(stream.position(), (BatchStream::Position{.epoch = 1, .sample = 0, .number = 3}));
  limit = 4;
  EXPECT_FALSE(stream.next()) << "a stream that has paused goes on only when it is opened";
  stream.open();
  EXPECT_TRUE(stream.next());
}

TEST(BatchStream, HasTheOrderOfOneWorkerAlone) {
  const optim::Schedule schedule({.epochs = 1, .batch = 8});
  BatchStream stream(first_numbers(50), 9, schedule, [](const auto& position) { return position.epoch < 2; });
  data::BatchOrder order(first_numbers(50), 9, 0);
  while (const auto batch = stream.next()) {
    const auto expected = order.next(8);
    EXPECT_EQ(batch->indices, std::vector<std::uint32_t>(expected.begin(), expected.end()));
    EXPECT_EQ((BatchStream::Position{batch->epoch, batch->sample, batch->number}), order.position());
  }
}

struct Watched {
  TrainResult result{};
  std::map<std::uint32_t, int> times{};  // By sample.
};

Watched train_watched(const RunConfig& config) {
  const data::Dataset dataset = small_dataset();
  std::mutex mutex;
  std::vector<std::uint32_t> seen;
  std::vector<std::unique_ptr<WatchedReplica>> replicas;
  std::vector<compute::Replica*> pointers;
  for (int worker = 0; worker < config.workers; ++worker) {
    replicas.push_back(std::make_unique<WatchedReplica>(mutex, seen));
    pointers.push_back(replicas.back().get());
  }
  Trainer trainer(config, pointers, dataset, {});
  trainer.run();
  Watched watched{.result = trainer.result()};
  for (const std::uint32_t index : seen) ++watched.times[index];
  return watched;
}

class StreamedRun : public testing::TestWithParam<std::tuple<std::string, std::string, std::uint64_t>> {
 protected:
  RunConfig config() const {
    const auto& [strategy, fabric, checkpoint_every] = GetParam();
    RunConfig config = small_config(strategy, 3, fabric);
    if (fabric == "sim") config = uneven(config);
    if (strategy != "all-to-all") config.partition = "queue";
    config.schedule.batch = 5;
    config.checkpoint_every = checkpoint_every;
    return config;
  }
};

// No batch is lost, and none is given twice.
TEST_P(StreamedRun, EverySampleIsSeenOnceInEveryEpoch) {
  const Watched watched = train_watched(config());
  EXPECT_EQ(watched.result.ending, Ending::finished);
  EXPECT_TRUE(watched.result.balance.balanced) << to_text(watched.result.balance);
  EXPECT_EQ(watched.times.size(), small_dataset().train.count);
  for (const auto& [index, times] : watched.times) EXPECT_EQ(times, 2) << "sample " << index;
  EXPECT_EQ(watched.result.state.samples, 2 * small_dataset().train.count);
  EXPECT_EQ(watched.result.epochs, 2);
}

INSTANTIATE_TEST_SUITE_P(, StreamedRun,
                         testing::Combine(testing::Values("async", "dogwild", "all-to-all"), testing::Values("threads", "sim"),
                                          testing::Values(std::uint64_t{0}, std::uint64_t{1})));

// Three times as fast, three times as many batches; and nobody waits for the slow one.
TEST(Queue, AFastWorkerTakesMoreBatches) {
  for (const char* strategy : {"async", "all-to-all"}) {
    RunConfig config = small_config(strategy, 2, "sim");
    config.schedule.batch = 2;
    config.checkpoint_every = 0;
    config.fabric.sim.speeds = {{.ranks = fabric::RankSet{1}, .factor = 1.0 / 3}};
    const Trained fixed = [&] {
      RunConfig shares = config;
      shares.strategy = "async";
      return train_small(shares);
    }();
    if (config.strategy == "async") config.partition = "queue";
    const Trained trained = train_small(config);
    const std::vector<std::uint64_t>& steps = trained.result.balance.steps;
    const double ratio = static_cast<double>(steps[0]) / static_cast<double>(steps[1]);
    EXPECT_NEAR(ratio, 3, 0.2) << strategy;
    EXPECT_EQ(steps[0] + steps[1], 200U);
    EXPECT_LT(trained.result.state.seconds, 0.6 * fixed.result.state.seconds) << strategy;
  }
}

TEST(Queue, IsRefusedWhereAllTakeEquallyManySteps) {
  RunConfig config = small_config("sync", 2, "sim");
  config.partition = "queue";
  EXPECT_THROW(validate(config), UserError);
  config.strategy = "async";
  EXPECT_NO_THROW(validate(config));
}

TEST(Queue, AGeneratorDealsFromTheWholeSetOnly) {
  RunConfig config = small_config("all-to-all", 2, "sim");
  config.partition = "labels";
  EXPECT_THROW(validate(config), UserError);
}

// Which of the workers' models is the run's. Replicas that only hear of their neighbours differ.
TEST(ResultPolicy, IsTheAverageOrOneOfThem) {
  const auto model = [](const std::string& policy) {
    RunConfig config = uneven(small_config("neighbours", 4, "sim"));
    config.options = {{"result", policy}};
    config.validation = 0.2;
    return train_small(config).model;
  };
  const std::vector<float> average = model("average");
  const std::vector<float> first = model("rank0");
  const std::vector<float> best = model("best");
  EXPECT_NE(average, first);
  EXPECT_NE(average, best);
}

TEST(ResultPolicy, BestNeedsValidationSamples) {
  RunConfig config = small_config("neighbours", 4, "sim");
  config.options = {{"result", "best"}};
  EXPECT_THROW(validate(config), UserError);
  config.validation = 0.1;
  EXPECT_NO_THROW(validate(config));
  config.validation = 0.9;
  EXPECT_THROW(validate(config), UserError);
}

TEST(Validation, SamplesAreNeverTrainedOn) {
  RunConfig config = small_config("async", 2, "sim");
  config.validation = 0.25;
  const std::size_t count = small_dataset().train.count;
  for (const char* partition : {"shared", "queue", "dataset", "none"}) {
    config.partition = partition;
    const Watched watched = train_watched(config);
    const std::vector<std::uint32_t> held = data::hold_out(small_dataset().train, 0.25, config.seed());
    EXPECT_EQ(held.size(), count / 4);
    EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
    for (const std::uint32_t index : held) EXPECT_FALSE(watched.times.contains(index)) << partition << ", sample " << index;
    EXPECT_EQ(watched.times.size(), count - held.size()) << partition;
  }
}

}  // namespace
}  // namespace starling::run
