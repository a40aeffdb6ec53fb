// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "contract/fabrics.h"
#include "starling/collective/collective.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

class DepartureTest : public FabricTest {};
INSTANTIATE_ON_ALL_FABRICS(DepartureTest);

void expect_lost(const Status& status, Rank peer) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().kind, FailureKind::peer_lost) << status.failure().message();
  EXPECT_EQ(status.failure().peer, peer) << status.failure().message();
}

Status status_of(const Result<Message>& result) { return result ? Status() : Status(result.failure()); }

TEST_P(DepartureTest, AWaitForARankThatLeavesEndsAtOnce) {
  run([&](Endpoint& endpoint) -> Status {
    const Rank last = endpoint.size() - 1;
    if (endpoint.rank() == last) {
      endpoint.sleep(20ms);
      return {};
    }
    const Time begin = endpoint.now();
    expect_lost(status_of(endpoint.receive(from(last))), last);
    EXPECT_LT(endpoint.now() - begin, 10s);  // The time-out is 30 s.
    EXPECT_EQ(endpoint.peer(last), PeerState::finished);
    expect_lost(endpoint.send(last, 1, {}), last);
    return {};
  });
}

TEST_P(DepartureTest, WhatARankSentBeforeItLeftIsStillReceived) {
  run([&](Endpoint& endpoint) -> Status {
    const Rank last = endpoint.size() - 1;
    if (endpoint.rank() == last) {
      for (Rank to = 0; to < last; ++to) {
        for (int i = 0; i < 3; ++i) STARLING_TRY(endpoint.send(to, 1, Payload::allocate(1000)));
      }
      return {};
    }
    // Another tag never comes; that the messages of tag 1 are there must not keep the wait from ending.
    expect_lost(status_of(endpoint.receive(from(last, 2))), last);
    for (int i = 0; i < 3; ++i) STARLING_TRY(status_of(endpoint.receive(from(last, 1))));
    expect_lost(status_of(endpoint.receive(from(last, 1))), last);
    return {};
  });
}

TEST_P(DepartureTest, AWaitForAnybodyEndsWhenAllOthersAreGone) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) return endpoint.send(0, 1, {});
    for (int i = 1; i < endpoint.size(); ++i) STARLING_TRY(status_of(endpoint.receive(anything())));
    expect_lost(status_of(endpoint.receive(anything())), kAnyRank);
    EXPECT_EQ(endpoint.departures().size(), static_cast<std::size_t>(endpoint.size() - 1));
    return {};
  });
}

TEST_P(DepartureTest, AWatchingWaitForAnybodyHearsOfEachDeparture) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) {
      endpoint.sleep(endpoint.rank() * 2ms);
      return {};
    }
    for (std::size_t seen = 0; seen + 1 < static_cast<std::size_t>(endpoint.size()); ++seen) {
      Filter filter = anything();
      filter.departures_seen = seen;
      const Result<Message> message = endpoint.receive(filter);
      EXPECT_FALSE(message.ok());
      if (message.ok()) return {};
      expect_lost(Status(message.failure()), endpoint.departures()[seen].rank);
    }
    return {};
  });
}

// A server that stops when all have departed must have had everything they sent.
TEST_P(DepartureTest, ADepartureIsHeardOfAfterWhatTheRankSent) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) {
      for (int i = 0; i < 3; ++i) STARLING_TRY(endpoint.send(0, 1, Payload::allocate(10000)));
      return {};
    }
    int received = 0;
    for (std::size_t seen = 0; seen + 1 < static_cast<std::size_t>(endpoint.size());) {
      Filter filter = anything();
      filter.departures_seen = seen;
      if (endpoint.receive(filter).ok()) {
        ++received;
      } else {
        ++seen;
      }
    }
    EXPECT_EQ(received, 3 * (endpoint.size() - 1));
    return {};
  });
}

TEST_P(DepartureTest, AWatchingWaitForOneRankNamesTheOneThatLeft) {
  if (ranks() < 3) return;
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 2) return {};
    if (endpoint.rank() == 0) {
      Filter filter = from(1);
      filter.departures_seen = 0;
      const Result<Message> message = endpoint.receive(filter);
      EXPECT_FALSE(message.ok());
      if (!message.ok()) expect_lost(Status(message.failure()), endpoint.departures()[0].rank);
      for (Rank to = 1; to < endpoint.size(); ++to) (void)endpoint.send(to, 1, {}).ok();
      return {};
    }
    return status_of(endpoint.receive(from(0)));
  });
}

TEST_P(DepartureTest, ASenderThatWaitsForRoomHearsOfIt) {
  FabricOptions few = options();
  few.queue_messages = 1;
  run(few, [&](Endpoint& endpoint) -> Status {
    STARLING_TRY(collective::barrier(endpoint, Group::world(endpoint.size())));
    if (endpoint.rank() == 0) {
      endpoint.sleep(300ms);
      return {};
    }
    STARLING_TRY(endpoint.send(0, 1, {}));
    expect_lost(endpoint.send(0, 1, {}), 0);
    return {};
  });
}

TEST_P(DepartureTest, ARankThatThrowsOrFailsIsLostAndReported) {
  const std::unique_ptr<Fabric> fabric = make_fabric(fabric_name(), options());
  const RunReport report = fabric->run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) throw std::runtime_error("out of luck");
    const Result<Message> message = endpoint.receive(from(0));
    EXPECT_EQ(endpoint.peer(0), PeerState::lost);
    return message.failure();
  });
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.outcomes[0].message, "out of luck");
  if (in_one_process(*fabric)) {
    EXPECT_THROW(report.rethrow(), std::runtime_error);
  }
  for (std::size_t rank = 1; rank < report.outcomes.size(); ++rank) {
    EXPECT_EQ(report.outcomes[rank].kind, RankOutcome::Kind::failed);
    EXPECT_NE(report.outcomes[rank].message.find("from rank 0: it is gone"), std::string::npos) << report.outcomes[rank].message;
  }
}

TEST_P(DepartureTest, ACollectiveWithoutOneMemberFailsEverywhere) {
  if (ranks() == 1) return;
  for (const auto algorithm : {collective::Algorithm::automatic, collective::Algorithm::flat, collective::Algorithm::direct,
                               collective::Algorithm::ring, collective::Algorithm::hierarchical}) {
    SCOPED_TRACE(collective::to_string(algorithm));
    const std::unique_ptr<Fabric> fabric = make_fabric(fabric_name(), options());
    const RunReport report = fabric->run([&](Endpoint& endpoint) -> Status {
      std::vector<float> values(5000, 1);
      const Group world = Group::world(endpoint.size());
      const collective::AllReduceOptions how{.algorithm = algorithm, .subgroup = 2};
      STARLING_TRY(collective::all_reduce(endpoint, world, values, how));
      if (endpoint.rank() == endpoint.size() - 1) return {};
      return collective::all_reduce(endpoint, world, values, how);
    });
    for (int rank = 0; rank + 1 < ranks(); ++rank) {
      EXPECT_EQ(report.outcomes[static_cast<std::size_t>(rank)].kind, RankOutcome::Kind::failed) << "rank " << rank;
      EXPECT_NE(report.outcomes[static_cast<std::size_t>(rank)].message.find("peer lost"), std::string::npos)
          << report.outcomes[static_cast<std::size_t>(rank)].message;
    }
  }
}

TEST_P(DepartureTest, ACollectiveThatAMemberDoesNotJoinTimesOut) {
  if (ranks() == 1) return;
  for (const auto algorithm : {collective::Algorithm::automatic, collective::Algorithm::ring}) {
    SCOPED_TRACE(collective::to_string(algorithm));
    const std::unique_ptr<Fabric> fabric = make_fabric(fabric_name(), options());
    const RunReport report = fabric->run([&](Endpoint& endpoint) -> Status {
      STARLING_TRY(collective::barrier(endpoint, Group::world(endpoint.size())));
      if (endpoint.rank() == 0) {
        endpoint.sleep(400ms);  // Alive, but elsewhere.
        return {};
      }
      std::vector<float> values(5000, 1);
      return collective::all_reduce(endpoint, Group::world(endpoint.size()), values,
                                    {.algorithm = algorithm, .deadline = Deadline::after(30ms)});
    });
    EXPECT_EQ(report.outcomes[0].kind, RankOutcome::Kind::finished);
    int timeouts = 0;
    for (std::size_t rank = 1; rank < report.outcomes.size(); ++rank) {
      EXPECT_EQ(report.outcomes[rank].kind, RankOutcome::Kind::failed) << "rank " << rank;
      if (report.outcomes[rank].message.find("time-out") != std::string::npos) ++timeouts;
    }
    EXPECT_GE(timeouts, 1);  // The others may hear of it from the first that gave up.
  }
}

TEST_P(DepartureTest, AFabricCanRunAgain) {
  const std::unique_ptr<Fabric> fabric = make_fabric(fabric_name(), options());
  for (int time = 0; time < 3; ++time) {
    expect_success(*fabric, [&](Endpoint& endpoint) -> Status {
      EXPECT_TRUE(endpoint.departures().size() < static_cast<std::size_t>(endpoint.size()));
      auto window = endpoint.open_window("again", 1, endpoint.rank());
      if (!window) return window.failure();
      std::vector<float> value(1);
      STARLING_TRY((*window)->read(0, value));
      EXPECT_EQ(value[0], 0.0F);
      STARLING_TRY((*window)->add(0, std::vector<float>{1}));
      return endpoint.send(endpoint.rank(), 1, {});
    });
  }
}

}  // namespace
}  // namespace starling::fabric
