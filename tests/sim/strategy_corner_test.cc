// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Cases at the edge of training with many workers, each of which went wrong once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "starling/run/checkpoint.h"
#include "starling/run/run_directory.h"
#include "starling/strategy/registry.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class StrategyCorner : public testing::Test {
 protected:
  StrategyCorner() : folder_(testing::TempDir() + "starling_strategy_corner_" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~StrategyCorner() override { fs::remove_all(folder_); }

  std::string folder_;
};

double largest_difference(const Trained& a, const Trained& b) {
  double largest = 0;
  for (std::size_t i = 0; i + 1 < a.model.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a.model[i] - b.model[i])));
  return largest;
}

// The fastest worker is done long before; what the slow one does after that belongs into the last checkpoint all the same.
TEST_F(StrategyCorner, TheLastCheckpointHasTheStepsOfTheSlowestWorker) {
  RunConfig config = small_config("async", 2, "sim");
  config.checkpoint_interval = 100ms;
  config.checkpoint_every = 0;
  config.fabric.sim.speeds = {{.ranks = fabric::RankSet{1}, .factor = 0.1}};
  RunDirectory directory = RunDirectory::create(folder_, config);
  const Trained trained = train_small(config, {.directory = &directory});
  const Checkpoint last = CheckpointStore(directory.checkpoints_path()).read("latest");
  EXPECT_EQ(last.state.samples, 400U);
  EXPECT_EQ(last.weights.values, trained.model);
}

// A run that goes back to its last checkpoint leaves updates under way; they are no mistake of the books.
TEST_F(StrategyCorner, ARunThatIsGivenUpHasBooksThatBalance) {
  for (const char* strategy : {"downpour", "agn", "ea-wild", "easgd", "hogwild", "ssp", "ist"}) {
    for (int stop_after = 1; stop_after < 30; ++stop_after) {
      RunConfig config = uneven(small_config(strategy, 3, "sim"));
      config.schedule.batch = 4;
      int steps = 0;
      const Trained trained = train_small(config, {.stop = [&] { return ++steps == stop_after; }});
      EXPECT_EQ(trained.result.ending, Ending::interrupted);
      EXPECT_TRUE(trained.result.balance.balanced) << strategy << " stopped after " << stop_after << "\n"
                                                   << to_text(trained.result.balance);
    }
  }
}

// 200 samples over 3 workers leave unequal batches at the end of an epoch.
TEST_F(StrategyCorner, AnAverageAfterEveryStepIsSynchronousAlsoWhereBatchesDiffer) {
  for (const int workers : {3, 7}) {
    RunConfig config = small_config("sync", workers, "sim");
    config.optimiser.name = "sgd";
    const Trained sync = train_small(config);
    config.strategy = "local-sgd";
    config.options = {{"period", "1"}};
    EXPECT_LT(largest_difference(train_small(config), sync), 1e-6) << workers << " workers";
    // One group, whose centre pulls nobody: synchronous, too.
    config.strategy = "ea-wild";
    config.options = {{"group", std::to_string(workers)}, {"beta", "0"}, {"tau", "1000000"}};
    config.epochs = 1;
    const Trained group = train_small(config);
    EXPECT_EQ(group.result.ending, Ending::finished);
  }
}

// Looking at the servers' weights for an evaluation on the side is not pulling them.
TEST_F(StrategyCorner, EvaluatingDoesNotChangeACompensation) {
  RunConfig config = uneven(small_config("dc-asgd", 3, "sim"));
  config.options = {{"lambda", "50"}};
  config.checkpoint_every = 0;
  config.fabric.sim.network.link.latency = Duration::zero();
  config.fabric.sim.network.link.jitter = {};
  const Trained evaluated = train_small(config);
  config.evaluate_every = 0;
  EXPECT_EQ(train_small(config).model, evaluated.model);
}

// A worker's weights contain what it has pushed since it fetched.
TEST_F(StrategyCorner, TheUpdatesOfALoneWorkerAreNeverStale) {
  RunConfig config = small_config("downpour", 1, "sim");
  config.options = {{"n_push", "1"}, {"n_fetch", "4"}};
  const ledger::Balance balance = train_small(config).result.balance;
  EXPECT_EQ(balance.set_staleness.max(), 0U);
  EXPECT_EQ(balance.version_staleness.max(), 0U);
  EXPECT_GT(balance.applied, 20U);
}

// Parts of a model so small that they have no matrix for PowerSGD.
TEST_F(StrategyCorner, APartWithoutMatricesHasACheckpoint) {
  RunConfig config = small_config("async", 2, "sim");
  config.servers = 7;
  config.codec = "powersgd:1";
  RunDirectory directory = RunDirectory::create(folder_, config);
  const Trained trained = train_small(config, {.directory = &directory});
  EXPECT_EQ(trained.result.ending, Ending::finished);
}

TEST_F(StrategyCorner, ServersKnowADuplicate) {
  for (const char* strategy : {"async", "downpour", "easgd", "ssp"}) {
    RunConfig config = uneven(small_config(strategy, 3, "sim"));
    config.fabric.sim.faults.duplicates = {{.probability = 0.3}};
    const Trained trained = train_small(config);
    EXPECT_EQ(trained.result.ending, Ending::finished);
    EXPECT_TRUE(trained.result.balance.balanced) << strategy << "\n" << to_text(trained.result.balance);
    EXPECT_EQ(trained.result.state.samples, 400U);
  }
}

// Byte by byte: every message, wait and computation at the same virtual time.
TEST_F(StrategyCorner, ATraceIsTheSameWhenRepeated) {
  const strategy::Registry registry = strategy::Registry::built_in();
  for (const strategy::Description& description : registry.all()) {
    if (description.one_worker_only || description.trains_parts) continue;  // The small model has no parts.
    for (const int workers : {5, 64}) {
      RunConfig config = uneven(small_config(description.name, workers, "sim"));
      config.schedule.batch = 1;
      const auto trace_of = [&] {
        std::ostringstream trace;
        const Trained trained = train_small(config, {.trace = &trace});
        EXPECT_EQ(trained.result.ending, Ending::finished) << description.name;
        return trace.str();
      };
      const std::string first = trace_of();
      EXPECT_GT(first.size(), 10'000U);
      EXPECT_TRUE(first == trace_of()) << description.name << " with " << workers << " workers";
    }
  }
}

// Where doubled messages are known for what they are, they change nothing.
TEST_F(StrategyCorner, DuplicatesDoNotOpenTheNextGathering) {
  for (const char* strategy : {"hogwild", "ea-wild"}) {
    RunConfig config = small_config(strategy, 4, "sim");
    config.schedule.batch = 5;
    config.fabric.sim.speeds = {{.ranks = fabric::RankSet{1}, .factor = 0.1}};
    const Trained plain = train_small(config);
    config.fabric.sim.faults.duplicates = {{.probability = 1}};
    const Trained doubled = train_small(config);
    EXPECT_EQ(doubled.model, plain.model) << strategy;
  }
}

TEST_F(StrategyCorner, WorkersThatGossipKnowADuplicate) {
  for (const char* strategy : {"gosgd", "ad-psgd"}) {
    for (const int workers : {2, 3, 6}) {
      RunConfig config = uneven(small_config(strategy, workers, "sim"));
      config.schedule.batch = 5;
      const Trained plain = train_small(config);
      config.fabric.sim.faults.duplicates = {{.probability = 0.5}};
      const Trained trained = train_small(config);
      EXPECT_EQ(trained.result.ending, Ending::finished);
      EXPECT_TRUE(trained.result.balance.balanced) << strategy << "\n" << to_text(trained.result.balance);
      EXPECT_TRUE(trained.result.balance.dropped.empty()) << strategy << "\n" << to_text(trained.result.balance);
      EXPECT_GT(trained.result.balance.produced, 5U);
      EXPECT_EQ(trained.result.state.samples, plain.result.state.samples);
    }
  }
}

// It cannot join those who have gone on, so it stays away; they finish.
TEST_F(StrategyCorner, AWorkerThatComesBackWithoutServersStaysAway) {
  for (const char* strategy : {"ea-wild", "hogwild", "gosgd", "ad-psgd"}) {
    RunConfig config = uneven(small_config(strategy, 3, "sim"));
    config.schedule.batch = 5;
    config.fabric.sim.faults.crashes = {{.rank = 1, .time = 30ms, .restart_after = 20ms}};
    const Trained trained = train_small(config);
    EXPECT_EQ(trained.result.ending, Ending::finished) << strategy;
    EXPECT_TRUE(trained.result.balance.balanced) << strategy << "\n" << to_text(trained.result.balance);
  }
}

}  // namespace
}  // namespace starling::run
