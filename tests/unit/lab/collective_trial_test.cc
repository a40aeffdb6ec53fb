// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/lab/collective_trial.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"

namespace starling::lab {
namespace {

using namespace std::chrono_literals;

TEST(CollectiveTrial, RunsEveryOperationWithEveryAlgorithm) {
  for (const std::string& operation : collective_operations()) {
    for (const collective::Algorithm algorithm : algorithms_of(operation)) {
      fabric::FabricOptions options;
      options.ranks = 3;
      fabric::ThreadsFabric fabric(options);
      EXPECT_NO_THROW(run_collective_trial(fabric, {operation, algorithm, 2, 100, 2})) << operation << collective::to_string(algorithm);
    }
  }
}

TEST(CollectiveTrial, ReportsTimeAndTrafficPerRepetition) {
  fabric::SimOptions options;
  options.ranks = 4;
  options.network.link = {.latency = 100us, .bytes_per_second = 1e9};
  for (const int repeat : {1, 3}) {
    fabric::SimFabric fabric(options);
    const CollectiveResult result = run_collective_trial(fabric, {"all-reduce", collective::Algorithm::ring, 1, 1000, repeat});
    EXPECT_EQ(result.time, 6 * 101us);
    EXPECT_EQ(result.messages, 6);
    EXPECT_EQ(result.bytes, 6000);
  }
}

TEST(CollectiveTrial, RefusesWhatDoesNotExist) {
  fabric::ThreadsFabric fabric(fabric::FabricOptions{});
  EXPECT_THROW(run_collective_trial(fabric, {.operation = "all-reduced"}), UserError);
  EXPECT_THROW(run_collective_trial(fabric, {"all-gather", collective::Algorithm::flat, 1, 1, 1}), UserError);
  EXPECT_THROW(run_collective_trial(fabric, {.repeat = 0}), UserError);
}

TEST(CollectiveTrial, SaysWhenARankDoesNotFinish) {
  fabric::SimOptions options;
  options.ranks = 3;
  options.faults.crashes = {{.rank = 1, .time = 1us}};
  fabric::SimFabric fabric(options);
  try {
    run_collective_trial(fabric, {});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 crashed"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace starling::lab
