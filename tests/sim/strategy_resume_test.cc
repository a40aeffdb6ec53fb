// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Interrupted and resumed, under every strategy. In the simulator the run is then, bit for bit, one that never stopped; on threads, where
// no two runs are the same, no update is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "starling/base/file.h"
#include "starling/run/run_directory.h"
#include "starling/strategy/registry.h"
#include "unit/run/small_training.h"

namespace starling::run {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class StrategyResume : public testing::TestWithParam<std::string> {
 protected:
  StrategyResume()
      : folder_(fmt::format("{}starling_strategy_resume_test_{}_{}", testing::TempDir(), GetParam(), ::getpid())),
        registry_(strategy::Registry::built_in()),
        description_(registry_.find(GetParam())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~StrategyResume() override { fs::remove_all(folder_); }

  // With meetings at epochs and in between, and options that leave something over at each.
  RunConfig config(const std::string& fabric) const {
    RunConfig config = small_config(description_.name, description_.one_worker_only ? 1 : 3, fabric);
    if (fabric == "sim") config = uneven(config);
    config.schedule.batch = 5;
    config.schedule.kind = "cosine";
    if (fabric == "sim") config.checkpoint_interval = 70ms;
    if (description_.name == "local-sgd" || description_.name == "fedavg") config.options = {{"period", "4"}};
    if (description_.name == "ist") {
      config.options = {{"period", "3"}};
      config.fabric.sim.compute.time_per_unit = Distribution::lognormal(4ms, 1ms);  // A part is about a quarter of the work.
    }
    if (description_.name == "dc-asgd") config.options = {{"adaptive", "true"}, {"lambda", "1"}};
    if (description_.needs_servers) config.servers = 2;
    return config;
  }

  bool takes_codecs() const { return description_.sends == strategy::Sends::gradients || description_.sends == strategy::Sends::deltas; }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // From the beginning, or from where the run of this name was left.
  Trained run(const std::string& name, const RunConfig& run_config, int stop_after = 0) const {
    const bool is_new = !fs::exists(path(name));
    RunDirectory directory = is_new ? RunDirectory::create(path(name), run_config) : RunDirectory::open(path(name));
    std::optional<Checkpoint> checkpoint;
    if (!is_new) checkpoint = CheckpointStore(directory.checkpoints_path()).read("latest");
    std::atomic<int> steps = 0;
    return train_small(run_config, {.directory = &directory, .stop = [&] { return ++steps == stop_after; }},
                       checkpoint ? &*checkpoint : nullptr);
  }

  // The metrics without times. Workers in lockstep may stop where they would not have met. Their steps are the same all the same, but not
  // the instants at which they are taken, and so not how far the others were when one of them recorded a step.
  std::string metrics_of(const std::string& name) const {
    std::istringstream lines(read_file(path(name) + "/metrics.jsonl", "metrics"));
    std::string result;
    for (std::string line; std::getline(lines, line);) {
      nlohmann::ordered_json json = nlohmann::ordered_json::parse(line);
      EXPECT_EQ(json.erase("seconds"), 1U);
      EXPECT_EQ(json.erase("samples_per_second"), 1U);
      if (description_.lockstep && json["kind"] == "step") {
        json.erase("samples");
        json.erase("train_loss");
        json.erase("applications");
        json.erase("staleness");
      }
      if (description_.lockstep) json.erase("bytes_sent");  // A stretch more begins with a broadcast more.
      result += json.dump() + "\n";
    }
    return result;
  }

  void expect_resumed_is_whole(const std::string& what, const RunConfig& run_config, const std::vector<int>& stops) {
    const std::string whole_name = fmt::format("whole {}", what);
    const Trained whole = run(whole_name, run_config);
    ASSERT_EQ(whole.result.ending, Ending::finished);
    ASSERT_TRUE(whole.result.balance.balanced) << to_text(whole.result.balance);
    ASSERT_GT(whole.result.state.stretches, 2U) << "there are too few meetings to come back to";
    for (const int stop_after : stops) {
      SCOPED_TRACE(fmt::format("{}, stopped after {}", what, stop_after));
      const std::string name = fmt::format("stopped {} {}", what, stop_after);
      EXPECT_EQ(run(name, run_config, stop_after).result.ending, Ending::interrupted);
      if (stop_after == stops.front()) (void)run(name, run_config, 5);
      const Trained last = run(name, run_config);
      EXPECT_EQ(last.result.ending, Ending::finished);
      EXPECT_EQ(last.result.weights_sha256, whole.result.weights_sha256);
      EXPECT_EQ(last.result.state.samples, whole.result.state.samples);
      EXPECT_EQ(last.result.state.test_accuracy, whole.result.state.test_accuracy);
      EXPECT_EQ(metrics_of(name), metrics_of(whole_name));
      expect_same_books(last.result.balance, whole.result.balance);
      // A stretch more begins with a broadcast more.
      if (!description_.lockstep) {
        EXPECT_EQ(last.result.balance.bytes_sent, whole.result.balance.bytes_sent);
      }
    }
  }

  static void expect_same_books(const ledger::Balance& actual, const ledger::Balance& expected) {
    EXPECT_TRUE(actual.balanced) << to_text(actual);
    EXPECT_EQ(actual.produced, expected.produced);
    EXPECT_EQ(actual.applied, expected.applied);
    EXPECT_EQ(actual.dropped, expected.dropped);
    EXPECT_EQ(actual.version_staleness.mean(), expected.version_staleness.mean());
    EXPECT_EQ(actual.version_staleness.max(), expected.version_staleness.max());
    EXPECT_EQ(actual.set_staleness.mean(), expected.set_staleness.mean());
    EXPECT_EQ(actual.skew.mean(), expected.skew.mean());
    EXPECT_EQ(actual.steps, expected.steps);
  }

  std::string folder_;
  strategy::Registry registry_;
  const strategy::Description& description_;
};

TEST_P(StrategyResume, IsTheSameBitForBitInTheSimulator) { expect_resumed_is_whole("plain", config("sim"), {30, 1, 61}); }

TEST_P(StrategyResume, IsTheSameBitForBitInEveryModeOfIst) {
  if (description_.name != "ist") return;
  for (const char* mode : {"sync", "sync-once", "async"}) {
    for (const char* masks : {"subnets", "uniform"}) {
      RunConfig run_config = config("sim");
      run_config.options = {{"mode", mode}, {"masks", masks}, {"period", "4"}, {"unowned", "keep"}};
      expect_resumed_is_whole(fmt::format("{} {}", mode, masks), run_config, {47});
    }
  }
}

// What a codec holds back is part of a checkpoint.
TEST_P(StrategyResume, IsTheSameBitForBitWithACodec) {
  if (!takes_codecs()) return;
  RunConfig run_config = config("sim");
  run_config.codec = "topk:0.25";
  expect_resumed_is_whole("topk", run_config, {54});
}

TEST_P(StrategyResume, LosesNoUpdateOnThreads) {
  const RunConfig run_config = config("threads");
  for (const int stop_after : {17, 50}) {
    SCOPED_TRACE(fmt::format("stopped after {}", stop_after));
    const std::string name = fmt::format("threads {}", stop_after);
    const Trained first = run(name, run_config, stop_after);
    EXPECT_TRUE(first.result.balance.balanced) << to_text(first.result.balance);
    const Trained last = run(name, run_config);
    EXPECT_EQ(last.result.ending, Ending::finished);
    EXPECT_EQ(last.result.state.samples, 400U);
    EXPECT_TRUE(last.result.balance.balanced) << to_text(last.result.balance);
    EXPECT_TRUE(last.result.balance.dropped.empty());
    EXPECT_EQ(last.result.balance.produced, last.result.balance.applied);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  const strategy::Registry registry = strategy::Registry::built_in();
  for (const strategy::Description& description : registry.all()) result.push_back(description.name);
  return result;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, StrategyResume, testing::ValuesIn(names()), test_name);

}  // namespace
}  // namespace starling::run
