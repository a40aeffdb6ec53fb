// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Every fault knob does what it says, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

SimOptions options(int ranks) {
  SimOptions result;
  result.ranks = ranks;
  result.network.link.latency = 100us;
  return result;
}

Payload numbered(std::uint64_t number) { return Payload::copy_of(std::span<const std::uint64_t>(&number, 1)); }

// Rank 0 sends `count` numbered messages to rank 1; the numbers that arrive, in order of arrival.
struct Stream {
  std::vector<std::uint64_t> numbers;
  std::vector<Time> times;
  sim::MessageFaults faults;
};
Stream stream(SimOptions options, std::uint64_t count, Duration pause = Duration::zero()) {
  options.queue_messages = 2 * count;
  Stream result;
  SimFabric fabric(options);
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      for (std::uint64_t i = 0; i < count; ++i) {
        STARLING_TRY(endpoint.send(1, 0, numbered(i)));
        if (pause > Duration::zero()) endpoint.sleep(pause);
      }
    } else if (endpoint.rank() == 1) {
      while (true) {
        Result<Message> message = endpoint.receive(from(0));
        if (!message) {
          EXPECT_EQ(message.failure().kind, FailureKind::peer_lost);
          return {};
        }
        EXPECT_EQ(message->sequence, message->payload.as<std::uint64_t>()[0]);
        result.numbers.push_back(message->sequence);
        result.times.push_back(endpoint.now());
      }
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  result.faults = fabric.message_faults();
  return result;
}

TEST(Fault, AllAreOffByDefault) {
  const Stream result = stream(options(2), 100);
  EXPECT_EQ(result.numbers.size(), 100U);
  EXPECT_EQ(result.faults.dropped + result.faults.duplicated + result.faults.spiked + result.faults.held, 0U);
}

TEST(Fault, DropLosesTheShareItSaysAndKeepsOrder) {
  SimOptions sim = options(2);
  sim.faults.drops = {{.probability = 0.1}};
  const Stream result = stream(sim, 5000);
  EXPECT_TRUE(std::is_sorted(result.numbers.begin(), result.numbers.end()));
  EXPECT_EQ(result.numbers.size() + result.faults.dropped, 5000U);
  EXPECT_NEAR(static_cast<double>(result.faults.dropped), 500, 80);
}

TEST(Fault, DropStrikesOnlyTheLinksItNames) {
  SimOptions sim = options(2);
  sim.faults.drops = {{.from = RankSet{1}, .to = RankSet{0}, .probability = 1}};
  EXPECT_EQ(stream(sim, 50).numbers.size(), 50U);
  sim.faults.drops = {{.from = RankSet{0}, .to = RankSet{1}, .probability = 1}};
  EXPECT_EQ(stream(sim, 50).numbers.size(), 0U);
}

TEST(Fault, DuplicatesArriveTwiceInARow) {
  SimOptions sim = options(2);
  sim.faults.duplicates = {{.probability = 0.2}};
  const Stream result = stream(sim, 1000);
  EXPECT_EQ(result.numbers.size(), 1000 + result.faults.duplicated);
  EXPECT_NEAR(static_cast<double>(result.faults.duplicated), 200, 50);
  EXPECT_TRUE(std::is_sorted(result.numbers.begin(), result.numbers.end()));
  std::vector<std::uint64_t> once = result.numbers;
  once.erase(std::unique(once.begin(), once.end()), once.end());
  EXPECT_EQ(once.size(), 1000U);
}

TEST(Fault, TheReceiverOfADuplicateMayWriteToIt) {
  SimOptions sim = options(2);
  sim.faults.duplicates = {{.probability = 1}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) return endpoint.send(1, 0, numbered(5));
    for (int i = 0; i < 2; ++i) {
      Result<Message> message = endpoint.receive(from(0));
      if (!message) return message.failure();
      EXPECT_EQ(message->payload.as<std::uint64_t>()[0], 5U);
      message->payload.writable_as<std::uint64_t>()[0] = 6;
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Fault, ADuplicateHasTheHeadOfTheOriginal) {
  SimOptions sim = options(2);
  sim.faults.duplicates = {{.probability = 1}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      Payload payload = numbered(5);
      payload.set_head(std::vector<std::byte>(3, std::byte{9}));
      return endpoint.send(1, 0, std::move(payload));
    }
    for (int i = 0; i < 2; ++i) {
      Result<Message> message = endpoint.receive(from(0));
      if (!message) return message.failure();
      EXPECT_TRUE(std::ranges::equal(message->payload.head(), std::vector<std::byte>(3, std::byte{9})));
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Fault, DelaySpikesHoldUpSomeMessagesAndThoseBehindThem) {
  SimOptions sim = options(2);
  sim.faults.spikes = {{.probability = 0.05, .delay = Distribution::constant(10ms)}};
  const Stream result = stream(sim, 200, 1ms);
  EXPECT_EQ(result.numbers.size(), 200U);
  EXPECT_TRUE(std::is_sorted(result.numbers.begin(), result.numbers.end()));
  EXPECT_NEAR(static_cast<double>(result.faults.spiked), 10, 9);
  int late = 0;
  for (std::size_t i = 0; i < result.times.size(); ++i) {
    const Duration delay = result.times[i] - (static_cast<std::int64_t>(result.numbers[i]) * 1ms + 100us);
    EXPECT_GE(delay, 0ms);
    EXPECT_LE(delay, 10ms);
    late += delay > 0ms ? 1 : 0;
  }
  EXPECT_GE(late, static_cast<int>(result.faults.spiked));
  // The first that is late was struck itself, and is late by the whole delay.
  const auto first = std::find_if(result.numbers.begin(), result.numbers.end(),
                                  [&](std::uint64_t i) { return result.times[i] > static_cast<std::int64_t>(i) * 1ms + 100us; });
  ASSERT_NE(first, result.numbers.end());
  EXPECT_EQ(result.times[*first], static_cast<std::int64_t>(*first) * 1ms + 100us + 10ms);
}

TEST(Fault, SpikesAndDuplicatesStrikeOnlyTheLinksTheyName) {
  SimOptions sim = options(3);
  sim.faults.spikes = {{.from = RankSet{1}, .probability = 1, .delay = Distribution::constant(10ms)},
                       {.to = RankSet{2}, .probability = 1, .delay = Distribution::constant(10ms)}};
  sim.faults.duplicates = {{.from = RankSet{1}, .probability = 1}, {.to = RankSet{2}, .probability = 1}};
  const Stream result = stream(sim, 50);
  EXPECT_EQ(result.numbers.size(), 50U);
  EXPECT_EQ(result.times.back(), 100us);
  EXPECT_EQ(result.faults.spiked + result.faults.duplicated, 0U);
}

// A collective is a protocol of our own: it knows a duplicate by its number.
TEST(Fault, CollectivesSurviveDuplicates) {
  SimOptions sim = options(4);
  sim.faults.duplicates = {{.probability = 0.5}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    for (int round = 1; round <= 20; ++round) {
      std::vector<float> values(100, static_cast<float>(round));
      STARLING_TRY(collective::all_reduce(endpoint, Group::world(4), values, {.algorithm = collective::Algorithm::ring}));
      EXPECT_EQ(values[50], static_cast<float>(4 * round));
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

// What a message that is lost would have drawn does not shift what others draw.
TEST(Fault, ADropDoesNotShiftTheJitterOfOtherMessages) {
  SimOptions sim = options(2);
  sim.network.link.jitter = Distribution::gauss(200us, 50us);
  const Stream all = stream(sim, 50, 10ms);
  sim.faults.drops = {{.probability = 0.3}};
  const Stream some = stream(sim, 50, 10ms);
  ASSERT_LT(some.numbers.size(), 50U);
  for (std::size_t i = 0; i < some.numbers.size(); ++i) EXPECT_EQ(some.times[i], all.times[some.numbers[i]]) << some.numbers[i];
}

TEST(Fault, WindowOperationsWaitForTheEndOfAPartitionAndAreNeverLost) {
  SimOptions sim = options(2);
  sim.faults.partitions = {{RankSet{1}, {1ms, 5ms}, true}};
  sim.faults.drops = {{.probability = 1}};
  sim.faults.spikes = {{.from = RankSet{1}, .probability = 1, .delay = Distribution::constant(1ms)}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("w", 1, 0);
    if (!window) return window.failure();
    if (endpoint.rank() == 1) {
      endpoint.sleep(2ms);
      STARLING_TRY((*window)->add(0, std::vector<float>{1}));
      EXPECT_EQ(endpoint.now(), 5ms + 1ms + 200us);
    } else {
      endpoint.sleep(10ms);
      std::vector<float> value(1);
      STARLING_TRY((*window)->read(0, value));
      EXPECT_EQ(value[0], 1.0F);
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Fault, PartitionsOneAfterTheOtherHoldWhateverTheirOrder) {
  for (const bool swapped : {false, true}) {
    SimOptions sim = options(2);
    sim.faults.partitions = {{RankSet{1}, {0ms, 20ms}}, {RankSet{1}, {20ms, 30ms}}};
    if (swapped) std::swap(sim.faults.partitions[0], sim.faults.partitions[1]);
    EXPECT_EQ(stream(sim, 1).times, (std::vector<Time>{30100us}));
  }
}

TEST(Fault, APartitionHoldsMessagesUntilItEnds) {
  SimOptions sim = options(3);
  sim.faults.partitions = {{RankSet{1}, {10ms, 50ms}}};
  const Stream result = stream(sim, 100, 1ms);
  EXPECT_EQ(result.numbers.size(), 100U);
  EXPECT_EQ(result.faults.held, 40U);
  for (std::size_t i = 0; i < 100; ++i) {
    const Time sent = static_cast<std::int64_t>(i) * 1ms;
    EXPECT_EQ(result.times[i], (sent >= 10ms && sent < 50ms ? 50ms : sent) + 100us) << i;
  }
}

TEST(Fault, APartitionThatDropsLosesWhatIsSentMeanwhile) {
  SimOptions sim = options(3);
  sim.faults.partitions = {{RankSet{1}, {10ms, 50ms}, true}};
  const Stream result = stream(sim, 100, 1ms);
  EXPECT_EQ(result.numbers.size(), 60U);
  EXPECT_EQ(result.faults.dropped, 40U);
}

TEST(Fault, APartitionLeavesLinksOnTheSameSideAlone) {
  SimOptions sim = options(4);
  sim.faults.partitions = {{RankSet{0, 1}, {0ms, 50ms}, true}};
  EXPECT_EQ(stream(sim, 10).numbers.size(), 10U);
}

TEST(Fault, APartitionThatNeverEndsIsNoticed) {
  SimOptions sim = options(2);
  sim.faults.partitions = {{RankSet{1}, {}}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) { return collective::barrier(endpoint, Group::world(2)); });
  EXPECT_FALSE(report.ok());
  EXPECT_NE(report.deadlock, "");
}

TEST(Fault, ASlowRankIsSlowWhileItLasts) {
  SimOptions sim = options(2);
  sim.faults.slow = {{RankSet{1}, 4, {2ms, 10ms}}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    std::vector<Time> ends;
    for (int i = 0; i < 5; ++i) {
      endpoint.compute(1, [] {});
      ends.push_back(endpoint.now());
    }
    // Slow are those that begin at 2 ms and at 6 ms.
    const std::vector<Time> slow{1ms, 2ms, 6ms, 10ms, 11ms};
    const std::vector<Time> usual{1ms, 2ms, 3ms, 4ms, 5ms};
    EXPECT_EQ(ends, endpoint.rank() == 1 ? slow : usual);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Crash, AtATimeIsSeenByAllWhoWait) {
  SimOptions sim = options(3);
  sim.faults.crashes = {{.rank = 2, .time = 5ms}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 2) {
      for (;;) endpoint.sleep(1ms);
    }
    const Result<Message> message = endpoint.receive(from(2));
    EXPECT_EQ(endpoint.now(), 5ms);
    EXPECT_EQ(endpoint.peer(2), PeerState::lost);
    return message.failure();
  });
  EXPECT_EQ(report.outcomes[2].kind, RankOutcome::Kind::crashed);
  EXPECT_NE(report.outcomes[2].message.find("at 5 ms"), std::string::npos) << report.outcomes[2].message;
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_NE(report.outcomes[rank].message.find("peer lost: rank " + std::to_string(rank) + " waited 5 ms for a message from rank 2"),
              std::string::npos)
        << report.outcomes[rank].message;
  }
}

TEST(Crash, IsNoticedAfterTheDetectionTime) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 1, .time = 5ms}};
  sim.faults.detection = 2ms;
  SimFabric fabric(sim);
  (void)fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 1) endpoint.sleep(1s);
    endpoint.sleep(6ms);
    EXPECT_EQ(endpoint.peer(1), PeerState::alive);
    EXPECT_TRUE(endpoint.send(1, 0, {}).ok());  // It does not know better yet.
    EXPECT_FALSE(endpoint.receive(from(1)).ok());
    EXPECT_EQ(endpoint.now(), 7ms);
    EXPECT_FALSE(endpoint.send(1, 0, {}).ok());
    return {};
  });
}

TEST(Crash, AtTheNthPassOfAPoint) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 1, .point = "step", .count = 3}};
  SimFabric fabric(sim);
  int steps = 0;
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    for (int i = 0; i < 10; ++i) {
      endpoint.pass("step");
      endpoint.pass("other");
      if (endpoint.rank() == 1) ++steps;
    }
    return {};
  });
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(report.outcomes[0].kind, RankOutcome::Kind::finished);
  EXPECT_EQ(report.outcomes[1].kind, RankOutcome::Kind::crashed);
  EXPECT_NE(report.outcomes[1].message.find("at pass 3 of 'step'"), std::string::npos);
}

TEST(Crash, UnwindsTheStackAndFurtherCallsDoNothing) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 1, .time = 5ms}};
  SimFabric fabric(sim);
  struct Guard {
    Endpoint& endpoint;
    bool& destroyed;
    ~Guard() {
      const Status status = endpoint.send(0, 1, {});
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(status.failure().kind, FailureKind::crashed);
      EXPECT_FALSE(endpoint.receive(from(0)).ok());
      endpoint.sleep(1s);
      destroyed = true;
    }
  };
  bool destroyed = false;
  (void)fabric.run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) return {};
    const Guard guard{endpoint, destroyed};
    try {
      endpoint.sleep(1s);
    } catch (...) {
      endpoint.sleep(1s);  // Swallowing the crash does not help: the next call throws again.
    }
    ADD_FAILURE() << "a crashed rank went on";
    return {};
  });
  EXPECT_TRUE(destroyed);
  EXPECT_EQ(fabric.end_time(), 5ms);
}

TEST(Crash, InTheMiddleOfComputeWaitsForTheRealWork) {
  SimOptions sim = options(2);
  sim.pool_threads = 2;
  sim.faults.crashes = {{.rank = 1, .time = 500us}};
  SimFabric fabric(sim);
  std::atomic<int> sum{0};
  (void)fabric.run([&](Endpoint& endpoint) -> Status {
    std::vector<int> local(1000, 1);
    endpoint.compute(1, [&] {
      for (int round = 0; round < 1000; ++round) {
        for (const int value : local) sum += value;
      }
    });
    EXPECT_EQ(endpoint.rank(), 0);
    return {};
  });
  EXPECT_EQ(sum, 2000000);
}

TEST(Crash, WhatWasSentBeforeStillArrivesAndNothingAfter) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 0, .time = 10500us}};
  EXPECT_EQ(
      [&] {
        SimFabric fabric(sim);
        std::uint64_t received = 0;
        (void)fabric.run([&](Endpoint& endpoint) -> Status {
          if (endpoint.rank() == 0) {
            for (std::uint64_t i = 0;; ++i) {
              STARLING_TRY(endpoint.send(1, 0, numbered(i)));
              endpoint.sleep(1ms);
            }
          }
          while (endpoint.receive(from(0)).ok()) ++received;
          return {};
        });
        return received;
      }(),
      11U);
}

TEST(Restart, RunsTheBodyAgainWithEmptyQueuesAndTheNextIncarnation) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 1, .time = 5ms, .restart_after = 10ms}};
  SimFabric fabric(sim);
  std::vector<int> incarnations;
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 1) {
      incarnations.push_back(endpoint.incarnation());
      if (endpoint.incarnation() == 0) endpoint.sleep(1s);
      EXPECT_EQ(endpoint.now(), 15ms);
      Result<Message> message = endpoint.receive(from(0));
      if (!message) return message.failure();
      EXPECT_EQ(message->payload.as<std::uint64_t>()[0], 2U);  // What was sent to its former self is lost.
      return {};
    }
    STARLING_TRY(endpoint.send(1, 0, numbered(1)));
    EXPECT_FALSE(endpoint.receive(from(1)).ok());
    EXPECT_EQ(endpoint.departures().size(), 1U);
    while (endpoint.peer(1) != PeerState::alive) endpoint.sleep(1ms);
    EXPECT_EQ(endpoint.now(), 15ms);
    return endpoint.send(1, 0, numbered(2));
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_EQ(incarnations, (std::vector<int>{0, 1}));
}

TEST(Restart, AfterACrashAtAPoint) {
  SimOptions sim = options(1);
  sim.faults.crashes = {{.rank = 0, .point = "step", .count = 2, .restart_after = 1ms}};
  SimFabric fabric(sim);
  int steps = 0;
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    for (int i = 0; i < 3; ++i) {
      endpoint.pass("step");
      ++steps;
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_EQ(steps, 1 + 3);
}

// A message to its former self is under way while the restarted rank waits for the sender, which has finished.
TEST(Restart, AMessageToTheFormerSelfDoesNotKeepTheWaitFromEnding) {
  SimOptions sim = options(2);
  sim.network.link.latency = 10ms;
  sim.faults.crashes = {{.rank = 1, .time = 1ms, .restart_after = 1ms}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) return endpoint.send(1, 0, {});
    if (endpoint.incarnation() == 0) endpoint.sleep(1s);
    const Result<Message> message = endpoint.receive(from(0));
    EXPECT_FALSE(message.ok());
    if (!message.ok()) {
      EXPECT_EQ(message.failure().kind, FailureKind::peer_lost);
    }
    EXPECT_EQ(endpoint.now(), 10ms);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Restart, AWindowThatTheRestartedHomeDoesNotReopenIsLost) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 0, .time = 5ms, .restart_after = 1ms}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    if (endpoint.incarnation() == 1) {
      endpoint.sleep(50ms);
      return {};
    }
    auto window = endpoint.open_window("w", 1, 0);
    if (!window) return window.failure();
    endpoint.sleep(10ms);
    const Status former = (*window)->add(0, std::vector<float>{1});
    EXPECT_FALSE(former.ok());
    if (!former.ok()) {
      EXPECT_EQ(former.failure().kind, FailureKind::peer_lost);
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

// The home carries an addition out and leaves while the acknowledgement travels: it was done, and that is what the asker hears.
TEST(Crash, AnOperationThatWasCarriedOutIsNotReportedAsLost) {
  SimFabric fabric(options(2));
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("w", 1, 0);
    if (!window) return window.failure();
    if (endpoint.rank() == 1) return (*window)->add(0, std::vector<float>{1});
    endpoint.sleep(150us);
    std::vector<float> value(1);
    STARLING_TRY((*window)->read(0, value));
    EXPECT_EQ(value[0], 1.0F);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Crash, InEveryKindOfWait) {
  const std::vector<std::pair<const char*, std::function<void(Endpoint&)>>> waits{
      {"sleep", [](Endpoint& endpoint) { endpoint.sleep(1s); }},
      {"compute", [](Endpoint& endpoint) { endpoint.compute(1000, [] {}); }},
      {"message", [](Endpoint& endpoint) { (void)endpoint.receive(from(0)).ok(); }},
      {"room",
       [](Endpoint& endpoint) {
         for (int i = 0; i < 100; ++i) (void)endpoint.send(0, 0, {}).ok();
       }},
      {"poll",
       [](Endpoint& endpoint) {
         for (int i = 0; i < 100000; ++i) (void)endpoint.poll(from(0));
       }},
      {"opening", [](Endpoint& endpoint) { (void)endpoint.open_window("never", 1, 0).ok(); }},
      {"window",
       [](Endpoint& endpoint) {
         auto window = endpoint.open_window("w", 1, 0);
         std::vector<float> value(1);
         for (int i = 0; i < 100000; ++i) (void)(*window)->read(0, value).ok();
       }},
  };
  for (const auto& [name, wait] : waits) {
    SCOPED_TRACE(name);
    SimOptions sim = options(2);
    sim.faults.crashes = {{.rank = 1, .time = 5050us}};
    SimFabric fabric(sim);
    const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
      if (endpoint.rank() == 0) {
        auto window = endpoint.open_window("w", 1, 0);
        endpoint.sleep(10ms);
        return {};
      }
      wait(endpoint);
      ADD_FAILURE() << "the wait returned";
      return {};
    });
    EXPECT_EQ(report.outcomes[0].kind, RankOutcome::Kind::finished);
    EXPECT_EQ(report.outcomes[1].kind, RankOutcome::Kind::crashed);
    EXPECT_EQ(fabric.end_time(), 10ms);
  }
}

TEST(Restart, LosesTheWindowsOfItsFormerSelf) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 0, .time = 5ms, .restart_after = 1ms}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("w", 1, 0);
    if (!window) return window.failure();
    if (endpoint.rank() == 0) {
      endpoint.sleep(20ms);
      return {};
    }
    STARLING_TRY((*window)->write(0, std::vector<float>{3}));
    endpoint.sleep(10ms);
    std::vector<float> value(1);
    const Status former = (*window)->read(0, value);
    EXPECT_FALSE(former.ok());
    window = endpoint.open_window("w", 1, 0);
    if (!window) return window.failure();
    STARLING_TRY((*window)->read(0, value));
    EXPECT_EQ(value[0], 0.0F);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Restart, BeforeTheCrashWasNoticedStillLeavesATrace) {
  SimOptions sim = options(2);
  sim.faults.crashes = {{.rank = 1, .time = 5ms, .restart_after = 1ms}};
  sim.faults.detection = 20ms;
  SimFabric fabric(sim);
  const RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 1) {
      endpoint.sleep(50ms);
      return {};
    }
    Filter filter = anything();
    filter.departures_seen = 0;
    EXPECT_FALSE(endpoint.receive(filter).ok());
    EXPECT_EQ(endpoint.now(), 25ms);
    EXPECT_EQ(endpoint.peer(1), PeerState::alive);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

// A collective loses a member in the middle: everybody ends, with an error that names somebody who is gone.
TEST(Crash, InTheMiddleOfARingEndsTheRingEverywhere) {
  for (int step = 0; step < 13; ++step) {
    SimOptions sim = options(8);
    sim.faults.crashes = {{.rank = 3, .time = step * 100us + 50us}};
    SimFabric fabric(sim);
    const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
      std::vector<float> values(800, 1);
      return collective::all_reduce(endpoint, Group::world(8), values, {.algorithm = collective::Algorithm::ring});
    });
    EXPECT_EQ(report.outcomes[3].kind, RankOutcome::Kind::crashed);
    EXPECT_EQ(report.outcomes[4].kind, RankOutcome::Kind::failed);  // Its right neighbour always misses something.
    for (const RankOutcome& outcome : report.outcomes) {
      if (outcome.rank == 3 || outcome.kind == RankOutcome::Kind::finished) continue;
      EXPECT_NE(outcome.message.find("peer lost"), std::string::npos) << outcome.message;
    }
    EXPECT_LT(fabric.end_time(), 10ms);
  }
}

}  // namespace
}  // namespace starling::fabric
