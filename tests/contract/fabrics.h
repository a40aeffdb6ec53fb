// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite runs every test on every fabric: a lambda becomes a program on N ranks.
//
//   TEST_P(MessageTest, ArrivesInOrder) {
//     run([](Endpoint& endpoint) -> Status { ... });
//   }
//
// To add a fabric whose ranks live in one process, add it to local_fabrics.cc. A fabric of several processes has a program of its own, of
// the same tests, that is started in all of them (mpi_fabrics.cc); there a lambda runs on the rank of its process alone, and what it
// captures is the process's own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"

namespace starling::fabric {

// The fabrics of this program, and the numbers of ranks that they can have here.
std::vector<std::string> fabric_names();
std::vector<int> rank_counts();
inline const std::vector<std::size_t> kSizes{0, 1, 1000, 1000000};

// All ranks of these fabrics live in this process.
bool has_one_process();

std::unique_ptr<Fabric> make_fabric(const std::string& name, const FabricOptions& options);

// All ranks live in this process, and see what a lambda captures.
inline bool in_one_process(const Fabric& fabric) { return fabric.local_ranks().size() == static_cast<std::size_t>(fabric.size()); }

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
  bool one_process() const { return in_one_process(*make_fabric(fabric_name(), options())); }
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

#define INSTANTIATE_ON_ALL_FABRICS(suite)                                                                                            \
  INSTANTIATE_TEST_SUITE_P(                                                                                                          \
      , suite,                                                                                                                       \
      testing::Combine(testing::ValuesIn(::starling::fabric::fabric_names()), testing::ValuesIn(::starling::fabric::rank_counts())), \
      test_name)
#define INSTANTIATE_ON_ALL_FABRICS_AND_SIZES(suite)                                                                           \
  INSTANTIATE_TEST_SUITE_P(, suite,                                                                                           \
                           testing::Combine(testing::ValuesIn(::starling::fabric::fabric_names()),                            \
                                            testing::ValuesIn(::starling::fabric::rank_counts()), testing::ValuesIn(kSizes)), \
                           sized_test_name)

}  // namespace starling::fabric
