// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A thousand ranks in one process, within the time and memory the project promises.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"

namespace starling::fabric {
namespace {

std::size_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

class ThousandRanks : public testing::TestWithParam<collective::Algorithm> {};
INSTANTIATE_TEST_SUITE_P(, ThousandRanks,
                         testing::Values(collective::Algorithm::flat, collective::Algorithm::direct, collective::Algorithm::ring,
                                         collective::Algorithm::hierarchical),
                         [](const auto& test) { return collective::to_string(test.param); });

TEST_P(ThousandRanks, AllReduceInUnderAMinuteAndTwoGigabytes) {
  SimOptions options;
  options.ranks = 1000;
  options.network.link.bytes_per_second = 1e9;
  SimFabric fabric(options);
  const auto begin = std::chrono::steady_clock::now();
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    std::vector<float> values(1000, static_cast<float>(endpoint.rank()));
    STARLING_TRY(collective::all_reduce(endpoint, Group::world(1000), values, {.algorithm = GetParam(), .subgroup = 32}));
    EXPECT_EQ(values.front(), 499500.0F);
    EXPECT_EQ(values.back(), 499500.0F);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_LT(peak_memory_bytes(), std::size_t{2} << 30);
}

}  // namespace
}  // namespace starling::fabric
