// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Ranks that crash in the middle of training. Where a strategy can do without a worker the others finish, and what the lost one had not
// sent is in the books; where it cannot, every rank stops with an error that names it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "starling/run/run_directory.h"
#include "starling/strategy/registry.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kWorkers = 4;

std::vector<std::string> strategies(bool that_survive) {
  std::vector<std::string> names;
  const strategy::Registry registry = strategy::Registry::built_in();
  for (const strategy::Description& description : registry.all()) {
    if (!description.one_worker_only && description.survives_lost_worker == that_survive) names.push_back(description.name);
  }
  return names;
}

bool has_servers(const std::string& strategy) { return strategy::Registry::built_in().find(strategy).needs_servers; }

bool needs_worker_zero(const std::string& strategy) {
  return strategy::Registry::built_in().find(strategy).places == strategy::Places::centre;
}

// A worker, not the first, whose pushes are updates of its own: where some only answer, not one of those.
int sender_of(const std::string& strategy) { return strategy == "ad-psgd" ? 2 : 1; }

RunConfig config_with(const std::string& strategy, const fabric::CrashRule& crash, Duration detection = Duration::zero()) {
  RunConfig config = uneven(small_config(strategy, kWorkers, "sim"));
  config.schedule.batch = 5;  // Ten steps in an epoch.
  config.fabric.sim.faults.crashes = {crash};
  config.fabric.sim.faults.detection = detection;
  config.fabric.sim.timeout = 2s;
  if (strategy == "ist") {
    config.options = {{"period", "2"}};
    config.fabric.sim.compute.time_per_unit = Distribution::lognormal(6ms, 2ms);  // A part is about a sixth of the work.
  }
  return config;
}

std::uint64_t dropped(const ledger::Balance& balance, const std::string& reason) {
  const auto found = balance.dropped.find(reason);
  return found == balance.dropped.end() ? 0 : found->second;
}

// Where a generator deals batches out, nobody has a share of its own.
bool has_generator(const std::string& strategy) { return strategy::Registry::built_in().find(strategy).needs_generator; }

void expect_survivors_finished(const std::string& strategy, const Trained& trained, int lost) {
  const ledger::Balance& balance = trained.result.balance;
  EXPECT_EQ(trained.result.ending, Ending::finished);
  EXPECT_EQ(trained.result.lost, std::vector<int>{lost});
  EXPECT_TRUE(balance.balanced) << to_text(balance);
  std::uint64_t all_dropped = 0;
  for (const auto& [reason, count] : balance.dropped) all_dropped += count;
  EXPECT_EQ(balance.produced, balance.applied + all_dropped);
  for (int worker = 0; worker < kWorkers; ++worker) {
    const WorkerState& state = trained.result.state.workers[static_cast<std::size_t>(worker)];
    if (has_generator(strategy)) {
      EXPECT_EQ(state.progress.epoch, 2U) << "the stream goes on to its end";
    } else if (worker == lost) {
      EXPECT_LT(state.progress.epoch, 2U);
    } else {
      EXPECT_EQ(state.progress.epoch, 2U) << "worker " << worker;
      EXPECT_EQ(state.samples, 100U) << "worker " << worker;
    }
  }
}

// What the ranks say where a run fails.
std::string failure_of(const RunConfig& config) {
  try {
    (void)train_small(config);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  ADD_FAILURE() << "it finished";
  return "";
}

std::string line_with(const std::string& text, const std::string& beginning) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(beginning)) return line;
  }
  return "";
}

// None waits for the time-out where the crash is heard of. A server that has nobody left to serve has done its work.
void expect_every_rank_names(int lost, const RunConfig& config) {
  const std::string text = failure_of(config);
  const strategy::Registry registry = strategy::Registry::built_in();
  const int ranks = config.roles(registry.find(config.strategy)).ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == lost) {
      EXPECT_NE(line_with(text, fmt::format("rank {} crashed", rank)), "") << text;
      continue;
    }
    if (rank >= kWorkers && lost >= kWorkers) continue;
    const std::string line = line_with(text, fmt::format("rank {} failed: peer lost: ", rank));
    const std::string after = line.substr(std::min(line.size(), fmt::format("rank {} failed: peer lost: rank {} ", rank, rank).size()));
    EXPECT_NE(after.find(fmt::format("rank {}", lost)), std::string::npos) << "rank " << rank << " does not name it:\n" << text;
  }
}

class StrategyFault : public testing::Test {
 protected:
  StrategyFault() : folder_(testing::TempDir() + "starling_strategy_fault_test_" + std::to_string(::getpid())) { fs::remove_all(folder_); }
  ~StrategyFault() override { fs::remove_all(folder_); }

  std::string folder_;
};

TEST_F(StrategyFault, TheOthersFinishWithoutAWorkerThatCrashesBeforeItSends) {
  for (const std::string& strategy : strategies(true)) {
    for (const Duration detection : {Duration(0), Duration(5ms)}) {
      for (const int count : {1, 3}) {
        SCOPED_TRACE(fmt::format("{}, detected after {}, at push {}", strategy, format_duration(detection), count));
        const int worker = sender_of(strategy);
        const Trained trained = train_small(config_with(strategy, {.rank = worker, .point = "push", .count = count}, detection));
        expect_survivors_finished(strategy, trained, worker);
        EXPECT_EQ(dropped(trained.result.balance, ledger::kSenderLost), 1U) << to_text(trained.result.balance);
      }
    }
  }
}

// By strategy, because the many runs of all together would take much memory under the thread sanitizer.
class LostWorker : public testing::TestWithParam<std::string> {};

// In the first stretch, at its end, and in the second: the epoch is about 100 ms.
TEST_P(LostWorker, TheOthersFinishWithoutOneThatCrashesAtAnyTime) {
  const std::string& strategy = GetParam();
  for (const int worker : {1, 3}) {
    for (int step = 1; step < 20; step += 3) {
      SCOPED_TRACE(fmt::format("worker {} at step {}", worker, step));
      expect_survivors_finished(
          strategy,
          train_small(
              config_with(strategy, {.rank = worker, .point = "step", .count = has_generator(strategy) ? std::min(step, 8) : step}, 5ms)),
          worker);
    }
    for (Duration time = 1ms; time < 100ms; time += 3700us) {
      SCOPED_TRACE(fmt::format("worker {} at {}", worker, format_duration(time)));
      expect_survivors_finished(strategy, train_small(config_with(strategy, {.rank = worker, .time = time})), worker);
    }
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, LostWorker, testing::ValuesIn(strategies(true)), test_name);

// Worker 0 gives the servers their first weights in each stretch: another has to do it. Workers that gossip are all alike. Where it is home
// to the centre, it cannot be spared.
TEST_F(StrategyFault, WorkerZeroIsNotNeededUnlessTheCentreIsThere) {
  for (const std::string& strategy : strategies(true)) {
    for (const int step : {3, 14}) {
      SCOPED_TRACE(fmt::format("{} at step {}", strategy, step));
      const RunConfig config = config_with(strategy, {.rank = 0, .point = "step", .count = step}, 5ms);
      if (needs_worker_zero(strategy)) {
        expect_every_rank_names(0, config);
      } else {
        expect_survivors_finished(strategy, train_small(config), 0);
      }
    }
  }
}

TEST_F(StrategyFault, EveryRankNamesAWorkerThatAllNeed) {
  for (const std::string& strategy : strategies(false)) {
    for (const Duration detection : {Duration(0), Duration(5ms)}) {
      for (const int worker : {0, 1, 3}) {
        const std::vector<fabric::CrashRule> crashes{{.rank = worker, .point = "push"},
                                                     {.rank = worker, .point = "push", .count = 4},
                                                     {.rank = worker, .point = "step", .count = 13},
                                                     {.rank = worker, .time = Time(30ms)}};
        for (const fabric::CrashRule& crash : crashes) {
          SCOPED_TRACE(fmt::format("{}, worker {} at '{}', detected after {}", strategy, worker, crash.point, format_duration(detection)));
          RunConfig config = config_with(strategy, crash, detection);
          if (strategy != "sync") config.options = {{"period", "2"}};
          expect_every_rank_names(worker, config);
        }
      }
    }
  }
}

TEST_F(StrategyFault, EveryRankNamesAWorkerWhoseSubnetAllWaitFor) {
  for (const char* mode : {"sync", "sync-once"}) {
    for (const int worker : {0, 1, 3}) {
      for (const fabric::CrashRule& crash :
           std::vector<fabric::CrashRule>{{.rank = worker, .point = "push", .count = 4}, {.rank = worker, .point = "step", .count = 13}}) {
        SCOPED_TRACE(fmt::format("{}, worker {} at '{}'", mode, worker, crash.point));
        RunConfig config = config_with("ist", crash, 5ms);
        config.options["mode"] = mode;
        expect_every_rank_names(worker, config);
      }
    }
  }
}

// Groups are synchronous inside.
TEST_F(StrategyFault, EveryRankNamesAWorkerWhoseGroupNeedsIt) {
  for (const int worker : {1, 3}) {
    RunConfig config = config_with("ea-wild", {.rank = worker, .point = "step", .count = 3}, 5ms);
    config.options = {{"group", "2"}};
    try {
      (void)train_small(config);
      ADD_FAILURE() << "finished without a member of a group";
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      const std::string partner = fmt::format("rank {} failed", worker - 1);
      EXPECT_NE(line_with(text, partner).find(fmt::format("rank {} was lost", worker)), std::string::npos) << text;
    }
  }
}

// Where nobody hears of the crash, the time-out ends the waiting; the rank that waited for the lost one itself names it.
TEST_F(StrategyFault, TheTimeOutEndsAWaitForACrashThatNobodyHearsOf) {
  for (const std::string& strategy : strategies(false)) {
    RunConfig config = config_with(strategy, {.rank = 1, .point = "push"}, 1h);
    if (strategy != "sync") config.options = {{"period", "2"}};
    const std::string text = failure_of(config);
    for (const int rank : {0, 2, 3}) {
      const std::string line = line_with(text, fmt::format("rank {} failed: ", rank));
      EXPECT_NE(line.find("time-out: "), std::string::npos) << strategy << ": " << text;
      EXPECT_NE(line.find(" waited 2 s for "), std::string::npos) << strategy << ": " << text;
    }
    EXPECT_NE(text.find("from rank 1"), std::string::npos) << strategy << ": " << text;
  }
}

TEST_F(StrategyFault, EveryWorkerNamesAServer) {
  for (const std::string& strategy : strategies(true)) {
    if (!has_servers(strategy)) continue;
    for (const int server : {kWorkers, kWorkers + 1}) {
      for (const Duration time : {Duration(1us), Duration(30ms), Duration(90ms)}) {
        SCOPED_TRACE(fmt::format("{}, server {} at {}", strategy, server, format_duration(time)));
        RunConfig config = config_with(strategy, {.rank = server, .time = time}, 5ms);
        config.servers = 2;
        expect_every_rank_names(server, config);
      }
    }
  }
}

// The lost worker takes up its work where it last met the others. It has fewer steps left than the crash would need.
TEST_F(StrategyFault, ARunThatLostAWorkerCanBeResumed) {
  for (const std::string& strategy : strategies(true)) {
    SCOPED_TRACE(strategy);
    const int worker = sender_of(strategy);
    const RunConfig config = config_with(strategy, {.rank = worker, .point = "step", .count = has_generator(strategy) ? 8 : 14}, 5ms);
    const std::string path = fmt::format("{}/{}", folder_, strategy);
    std::uint64_t produced = 0;
    {
      RunDirectory directory = RunDirectory::create(path, config);
      const Trained first = train_small(config, {.directory = &directory});
      expect_survivors_finished(strategy, first, worker);
      produced = first.result.balance.produced;
    }
    RunDirectory directory = RunDirectory::open(path);
    const Checkpoint checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    const Trained second = train_small(config, {.directory = &directory}, &checkpoint);
    EXPECT_EQ(second.result.ending, Ending::finished);
    EXPECT_TRUE(second.result.lost.empty());
    EXPECT_TRUE(second.result.balance.balanced) << to_text(second.result.balance);
    if (!has_generator(strategy)) {
      EXPECT_GT(second.result.balance.produced, produced);
    }
    for (const WorkerState& state : second.result.state.workers) EXPECT_EQ(state.progress.epoch, 2U);
  }
}

}  // namespace
}  // namespace starling::run
