// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "starling/fabric/sim/sim_fabric.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

SimOptions options(int ranks) {
  SimOptions result;
  result.ranks = ranks;
  return result;
}

TEST(Deadlock, IsReportedAtOnceWithWhoWaitsForWhat) {
  SimFabric fabric(options(3));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    endpoint.sleep(endpoint.rank() * 1ms);
    const Result<Message> message = endpoint.receive(from((endpoint.rank() + 1) % 3, 7));
    return message ? Status() : Status(message.failure());
  });
  EXPECT_EQ(fabric.end_time(), 2ms);  // Not the time-out of 30 s.
  EXPECT_NE(report.deadlock.find("deadlock at 2 ms: 3 ranks wait"), std::string::npos) << report.deadlock;
  EXPECT_NE(report.deadlock.find("rank 1 waits since 1 ms for a message with tag 7 from rank 2"), std::string::npos) << report.deadlock;
  for (const RankOutcome& outcome : report.outcomes) {
    EXPECT_EQ(outcome.kind, RankOutcome::Kind::failed);
    EXPECT_EQ(outcome.message.find("deadlock: rank"), 0U) << outcome.message;
  }
}

TEST(Deadlock, OfSendersWithFullQueuesIsFoundToo) {
  SimFabric fabric(options(2));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    for (;;) STARLING_TRY(endpoint.send(1 - endpoint.rank(), 0, Payload::allocate(8)));
  });
  EXPECT_NE(report.deadlock.find("rank 0 waits since"), std::string::npos) << report.deadlock;
  EXPECT_NE(report.deadlock.find("room at rank 1"), std::string::npos) << report.deadlock;
  for (const RankOutcome& outcome : report.outcomes) EXPECT_EQ(outcome.message.find("deadlock: rank"), 0U) << outcome.message;
}

TEST(Deadlock, ATimerOfTheCallersOwnIsNone) {
  SimFabric fabric(options(2));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    const Result<Message> message = endpoint.receive(anything(), Deadline::after(endpoint.rank() == 0 ? 5ms : 8ms));
    EXPECT_EQ(message.failure().kind, endpoint.rank() == 0 ? FailureKind::timeout : FailureKind::peer_lost);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_EQ(report.deadlock, "");
  EXPECT_EQ(fabric.end_time(), 5ms);
}

TEST(Deadlock, ARankThatTriesAgainForEverIsEnded) {
  SimFabric fabric(options(2));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    for (;;) (void)endpoint.receive(anything()).ok();
  });
  EXPECT_FALSE(report.ok());
  EXPECT_NE(report.summary().find("because it waited again and again after a deadlock"), std::string::npos) << report.summary();
}

TEST(Deadlock, TheReportOfManyRanksIsCutShort) {
  SimFabric fabric(options(100));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status { return endpoint.receive(anything()).failure(); });
  EXPECT_NE(report.deadlock.find("and 80 more"), std::string::npos) << report.deadlock;
}

}  // namespace
}  // namespace starling::fabric
