// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// That the trace is what Perfetto expects, and says what happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/traffic_program.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

json traced(SimOptions options, const Body& body) {
  std::ostringstream out;
  options.trace = &out;
  SimFabric fabric(options);
  (void)fabric.run(body);
  return json::parse(out.str());
}

std::int64_t nanoseconds(const json& microseconds) { return static_cast<std::int64_t>(std::llround(microseconds.get<double>() * 1000)); }

TEST(Trace, RowsAreRanksAndSlicesOnARowDoNotOverlap) {
  std::vector<float> results(5);
  const json trace = traced(eventful_options(5, 1), traffic_program(results));
  std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> rows;
  std::set<std::string> names;
  std::set<int> named_rows;
  for (const json& event : trace) {
    if (event["ph"] == "M" && event["name"] == "thread_name") {
      EXPECT_EQ(event["args"]["name"], "rank " + std::to_string(event["tid"].get<int>()));
      named_rows.insert(event["tid"].get<int>());
    }
    if (event["ph"] != "X") continue;
    names.insert(event["name"].get<std::string>());
    rows[event["tid"].get<int>()].emplace_back(nanoseconds(event["ts"]), nanoseconds(event["dur"]));
  }
  EXPECT_EQ(named_rows, (std::set<int>{0, 1, 2, 3, 4}));
  for (const char* name : {"compute", "sleep", "wait", "poll", "window", "send to 0", "receive from 0"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (auto& [row, slices] : rows) {
    std::sort(slices.begin(), slices.end());
    std::int64_t end = 0;
    for (const auto& [begin, duration] : slices) {
      EXPECT_GE(begin, end) << "row " << row;
      end = begin + duration;
    }
  }
}

TEST(Trace, EveryMessageIsAnArrowWithTwoEnds) {
  std::vector<float> results(5);
  const json trace = traced(eventful_options(5, 1), traffic_program(results));
  std::map<std::string, std::int64_t> starts;
  std::size_t ends = 0;
  for (const json& event : trace) {
    if (event["ph"] == "s") {
      EXPECT_TRUE(starts.emplace(event["id"].get<std::string>(), nanoseconds(event["ts"])).second);
    }
  }
  for (const json& event : trace) {
    if (event["ph"] != "f") continue;
    ++ends;
    const auto start = starts.find(event["id"].get<std::string>());
    ASSERT_NE(start, starts.end());
    EXPECT_LE(start->second, nanoseconds(event["ts"]));
    EXPECT_EQ(event["bp"], "e");
  }
  EXPECT_GT(ends, 50U);
  EXPECT_LE(ends, starts.size());
}

TEST(Trace, FaultsAreMarked) {
  SimOptions options;
  options.ranks = 2;
  options.faults.crashes = {{.rank = 1, .time = 5ms, .restart_after = 1ms}};
  options.faults.drops = {{.from = RankSet{0}, .probability = 1}};
  options.faults.duplicates = {{.from = RankSet{1}, .probability = 1}};
  const json trace = traced(options, [](Endpoint& endpoint) -> Status {
    STARLING_TRY(endpoint.send(1 - endpoint.rank(), 0, {}));
    STARLING_TRY(endpoint.send(1 - endpoint.rank(), kFirstReservedTag, {}));  // Its duplicate is known as one.
    endpoint.sleep(10ms);
    return {};
  });
  std::map<std::string, double> marks;
  for (const json& event : trace) {
    if (event["ph"] == "i") marks[event["name"].get<std::string>()] = event["ts"].get<double>();
  }
  EXPECT_EQ(marks["crash"], 5000);
  EXPECT_EQ(marks["restart"], 6000);
  EXPECT_TRUE(marks.contains("drop"));
  EXPECT_TRUE(marks.contains("duplicate"));
  EXPECT_TRUE(marks.contains("discard"));
}

TEST(Trace, OfARunThatFailsIsStillWhole) {
  SimOptions options;
  options.ranks = 2;
  const json trace = traced(options, [](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) throw std::runtime_error("broken");
    return endpoint.receive(from(0)).failure();
  });
  EXPECT_TRUE(trace.is_array());
}

}  // namespace
}  // namespace starling::fabric
