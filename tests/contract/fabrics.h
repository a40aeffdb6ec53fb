// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite runs every test on every fabric: a lambda becomes a program on N ranks.
//
//   TEST_P(MessageTest, ArrivesInOrder) {
//     run([](Endpoint& endpoint) -> Status { ... });
//   }
//
// To add a fabric, add it to make_fabric() and kFabrics.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"

namespace starling::fabric {

inline const std::vector<std::string> kFabrics{"threads", "sim"};
inline const std::vector<int> kRanks{1, 2, 3, 5, 8, 16};
inline const std::vector<std::size_t> kSizes{0, 1, 1000, 1000000};

inline std::unique_ptr<Fabric> make_fabric(const std::string& name, const FabricOptions& options) {
  if (name == "threads") return std::make_unique<ThreadsFabric>(options);
  SimOptions sim;
  static_cast<FabricOptions&>(sim) = options;
  sim.network.link.bytes_per_second = 1e9;
  return std::make_unique<SimFabric>(sim);
}

// Runs the body on every rank and expects all of them to finish.
inline void expect_success(Fabric& fabric, const Body& body) {
  const RunReport report = fabric.run(body);
  EXPECT_EQ(report.summary(), "");
}

// One fabric × one number of ranks.
class FabricTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string fabric_name() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  FabricOptions options() const {
    FabricOptions result;
    result.ranks = ranks();
    return result;
  }
  void run(const Body& body) { run(options(), body); }
  void run(const FabricOptions& options, const Body& body) { expect_success(*make_fabric(fabric_name(), options), body); }
};

inline std::string test_name(const testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param)) + "_ranks";
}

// One fabric × one number of ranks × one number of floats.
class SizedFabricTest : public testing::TestWithParam<std::tuple<std::string, int, std::size_t>> {
 protected:
  int ranks() const { return std::get<1>(GetParam()); }
  std::size_t floats() const { return std::get<2>(GetParam()); }
  void run(const Body& body) {
    FabricOptions options;
    options.ranks = ranks();
    expect_success(*make_fabric(std::get<0>(GetParam()), options), body);
  }
};

inline std::string sized_test_name(const testing::TestParamInfo<std::tuple<std::string, int, std::size_t>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param)) + "_ranks_" + std::to_string(std::get<2>(info.param)) +
         "_floats";
}

#define INSTANTIATE_ON_ALL_FABRICS(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Combine(testing::ValuesIn(kFabrics), testing::ValuesIn(kRanks)), test_name)
#define INSTANTIATE_ON_ALL_FABRICS_AND_SIZES(suite)                                                                                      \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Combine(testing::ValuesIn(kFabrics), testing::ValuesIn(kRanks), testing::ValuesIn(kSizes)), \
                           sized_test_name)

}  // namespace starling::fabric
