// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// That virtual time passes as the model says, to the nanosecond.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

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

// Runs the body on every rank, expects success, and returns the virtual time of the end.
Time run(const SimOptions& options, const Body& body) {
  SimFabric fabric(options);
  const RunReport report = fabric.run(body);
  EXPECT_EQ(report.summary(), "");
  return fabric.end_time();
}

// Rank 0 sends messages of the given sizes to rank 1 at time zero; the times at which they are received.
std::vector<Time> arrivals(const SimOptions& options, const std::vector<std::size_t>& sizes) {
  std::vector<Time> times;
  run(options, [&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      for (const std::size_t size : sizes) STARLING_TRY(endpoint.send(1, 0, Payload::allocate(size)));
    } else if (endpoint.rank() == 1) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Result<Message> message = endpoint.receive(from(0));
        if (!message) return message.failure();
        times.push_back(endpoint.now());
      }
    }
    return {};
  });
  return times;
}

TEST(ComputeTime, IsUnitsTimesTheModelOverTheSpeed) {
  SimOptions sim = options(3);
  sim.compute.time_per_unit = Distribution::constant(2ms);
  sim.speeds = {{RankSet{1}, 2.0}, {RankSet{2}, 0.5}};
  run(sim, [](Endpoint& endpoint) -> Status {
    endpoint.compute(10, [] {});
    EXPECT_EQ(endpoint.now(), endpoint.rank() == 0 ? 20ms : endpoint.rank() == 1 ? 10ms : 40ms);
    return {};
  });
}

TEST(ComputeTime, HasTheDistributionAskedFor) {
  for (const Distribution& distribution : {Distribution::gauss(2ms, 100us), Distribution::lognormal(2ms, 500us)}) {
    SimOptions sim = options(2);
    sim.compute.time_per_unit = distribution;
    constexpr int kCount = 4000;
    run(sim, [&](Endpoint& endpoint) -> Status {
      double sum = 0;
      double square = 0;
      for (int i = 0; i < kCount; ++i) {
        const Time begin = endpoint.now();
        endpoint.compute(1, [] {});
        const double seconds = to_seconds(endpoint.now() - begin);
        sum += seconds;
        square += seconds * seconds;
      }
      const double mean = sum / kCount;
      EXPECT_NEAR(mean, distribution.mean_seconds, 0.02 * distribution.mean_seconds);
      EXPECT_NEAR(std::sqrt(square / kCount - mean * mean), distribution.deviation_seconds, 0.08 * distribution.deviation_seconds);
      return {};
    });
  }
}

TEST(ComputeTime, DoesNotDependOnHowLongTheWorkReallyTakes) {
  for (const int spins : {0, 1'000'000}) {
    const Time end = run(options(4), [&](Endpoint& endpoint) -> Status {
      volatile int sink = 0;
      endpoint.compute(1, [&] {
        for (int i = 0; i < spins * endpoint.rank(); ++i) sink = i;
      });
      return {};
    });
    EXPECT_EQ(end, 1ms);
  }
}

TEST(Network, LatencyAlone) { EXPECT_EQ(arrivals(options(2), {0, 1000000}), (std::vector<Time>{100us, 100us})); }

TEST(Network, BandwidthAndSerialisationAtTheSender) {
  SimOptions sim = options(2);
  sim.network.link.bytes_per_second = 1e9;  // 1,000,000 bytes take 1 ms.
  EXPECT_EQ(arrivals(sim, {1000000, 1000000, 0}), (std::vector<Time>{1100us, 2100us, 2100us}));
}

// Times at which the end of one message is the beginning of the next are where an order could go wrong.
TEST(Network, AHeadTakesItsTimeToo) {
  SimOptions sim = options(2);
  sim.network.link.bytes_per_second = 1e9;
  run(sim, [](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      Payload payload = Payload::allocate(1000000);
      payload.set_head(std::vector<std::byte>(1000));
      return endpoint.send(1, 0, std::move(payload));
    }
    const Result<Message> message = endpoint.receive(from(0));
    if (!message) return message.failure();
    EXPECT_EQ(endpoint.now(), 100us + 1001us);
    return {};
  });
}

TEST(Network, OrderHoldsForMessagesOfAllSizes) {
  for (const bool sending : {true, false}) {
    for (const bool receiving : {true, false}) {
      SimOptions sim = options(2);
      sim.network.link.bytes_per_second = 1e9;
      sim.network.serialise_sending = sending;
      sim.network.serialise_receiving = receiving;
      run(sim, [](Endpoint& endpoint) -> Status {
        const std::vector<std::size_t> sizes{1000000, 0, 500000, 0, 0, 100, 1000000, 0};
        for (std::uint64_t i = 0; i < sizes.size(); ++i) {
          if (endpoint.rank() == 0) {
            STARLING_TRY(endpoint.send(1, 0, Payload::allocate(sizes[i])));
          } else {
            Result<Message> message = endpoint.receive(from(0));
            if (!message) return message.failure();
            EXPECT_EQ(message->sequence, i);
            EXPECT_EQ(message->payload.size_bytes(), sizes[i]);
          }
        }
        return {};
      });
    }
  }
}

// Two messages to different receivers share the sender's adapter; two from different senders share the receiver's.
TEST(Network, EachAdapterIsSerialisedByItsOwnKnob) {
  const auto last_arrival = [](bool sending, bool receiving, bool one_sender) {
    SimOptions sim = options(3);
    sim.network.link.bytes_per_second = 1e9;
    sim.network.serialise_sending = sending;
    sim.network.serialise_receiving = receiving;
    return run(sim, [&](Endpoint& endpoint) -> Status {
      const bool sends = one_sender ? endpoint.rank() == 0 : endpoint.rank() != 0;
      if (sends) {
        for (const Rank to : one_sender ? std::vector<Rank>{1, 2} : std::vector<Rank>{0}) {
          STARLING_TRY(endpoint.send(to, 0, Payload::allocate(1000000)));
        }
        return {};
      }
      for (int i = 0; i < (one_sender ? 1 : 2); ++i) {
        const Result<Message> message = endpoint.receive(anything());
        if (!message) return message.failure();
      }
      return {};
    });
  };
  EXPECT_EQ(last_arrival(true, false, true), 2100us);
  EXPECT_EQ(last_arrival(false, true, true), 1100us);
  EXPECT_EQ(last_arrival(true, false, false), 1100us);
  EXPECT_EQ(last_arrival(false, true, false), 2100us);
}

TEST(Sim, AnEmptyPollTakesItsCost) {
  SimOptions sim = options(1);
  sim.poll_cost = 3us;
  EXPECT_EQ(run(sim,
                [](Endpoint& endpoint) -> Status {
                  EXPECT_FALSE(endpoint.poll(anything()));
                  EXPECT_FALSE(endpoint.poll(anything()));
                  return {};
                }),
            6us);
}

TEST(Sim, TimesBeyondTheEndOfTimeDoNotOverflow) {
  SimOptions sim = options(2);
  sim.faults.detection = kEndOfTime;
  sim.faults.crashes = {{.rank = 1, .time = 1ms}};
  SimFabric fabric(sim);
  const RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    endpoint.sleep(2ms);
    const Result<Message> message = endpoint.receive(from(1), Deadline::at(kEndOfTime));
    return message ? Status() : Status(message.failure());
  });
  EXPECT_EQ(report.outcomes[0].kind, RankOutcome::Kind::failed);
}

TEST(Network, WithoutSerialisationMessagesOverlapButKeepTheirOrder) {
  SimOptions sim = options(2);
  sim.network.link.bytes_per_second = 1e9;
  sim.network.serialise_sending = false;
  sim.network.serialise_receiving = false;
  EXPECT_EQ(arrivals(sim, {1000000, 1000000, 1000}), (std::vector<Time>{1100us, 1100us, 1100us}));
}

// Seven clients send to a server at once, and it answers all: both its directions are the bottleneck.
TEST(Network, AServerWithManyClientsIsTheBottleneck) {
  const auto round_trip = [](bool serialise) {
    SimOptions sim = options(8);
    sim.network.link.bytes_per_second = 1e9;
    sim.network.serialise_sending = serialise;
    sim.network.serialise_receiving = serialise;
    return run(sim, [](Endpoint& endpoint) -> Status {
      if (endpoint.rank() != 0) {
        STARLING_TRY(endpoint.send(0, 0, Payload::allocate(1000000)));
        const Result<Message> reply = endpoint.receive(from(0));
        return reply ? Status() : Status(reply.failure());
      }
      for (int i = 1; i < endpoint.size(); ++i) {
        const Result<Message> request = endpoint.receive(anything());
        if (!request) return request.failure();
      }
      for (Rank to = 1; to < endpoint.size(); ++to) STARLING_TRY(endpoint.send(to, 0, Payload::allocate(1000000)));
      return {};
    });
  };
  EXPECT_EQ(round_trip(false), 2200us);
  EXPECT_EQ(round_trip(true), 2 * (100us + 7 * 1000us));
}

TEST(Network, LinksCanDiffer) {
  SimOptions sim = options(3);
  sim.network.rules = {{.from = RankSet{0}, .latency = 5ms}, {.from = RankSet{0}, .to = RankSet{1}, .latency = 7ms}};
  run(sim, [](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      STARLING_TRY(endpoint.send(1, 0, {}));
      STARLING_TRY(endpoint.send(2, 0, {}));
      const Result<Message> reply = endpoint.receive(from(1));
      EXPECT_EQ(endpoint.now(), 7100us);
      return reply ? Status() : Status(reply.failure());
    }
    const Result<Message> message = endpoint.receive(from(0));
    EXPECT_EQ(endpoint.now(), endpoint.rank() == 1 ? 7ms : 5ms);
    if (endpoint.rank() == 1) STARLING_TRY(endpoint.send(0, 0, {}));
    return message ? Status() : Status(message.failure());
  });
}

TEST(Network, JitterSpreadsArrivalsAndKeepsOrder) {
  SimOptions sim = options(2);
  sim.queue_messages = 1000;
  sim.network.link.jitter = Distribution::exponential(50us);
  const std::vector<Time> times = arrivals(sim, std::vector<std::size_t>(500, 0));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_GE(times.front(), 100us);
  EXPECT_GT(times.back(), 300us);  // The largest of 500 exponential draws.
}

TEST(Network, AMessageToOneselfTakesNoTime) {
  EXPECT_EQ(run(options(1),
                [](Endpoint& endpoint) -> Status {
                  STARLING_TRY(endpoint.send(0, 0, Payload::allocate(1000)));
                  const Result<Message> message = endpoint.receive(from(0));
                  return message ? Status() : Status(message.failure());
                }),
            Time::zero());
}

TEST(Network, WindowOperationsTakeARoundTrip) {
  SimOptions sim = options(2);
  sim.network.link.bytes_per_second = 1e9;
  run(sim, [](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("w", 250000, 0);
    if (!window) return window.failure();
    if (endpoint.rank() == 1) {
      std::vector<float> values(250000, 1);
      STARLING_TRY((*window)->add(0, values));  // A million bytes there, an acknowledgement back.
      EXPECT_EQ(endpoint.now(), 1200us);
      STARLING_TRY((*window)->read(0, values));  // A request there, a million bytes back.
      EXPECT_EQ(endpoint.now(), 2400us);
    } else {
      STARLING_TRY((*window)->add(0, std::vector<float>{1}));
      EXPECT_EQ(endpoint.now(), Time::zero());
    }
    return collective::barrier(endpoint, Group::world(2));
  });
}

// The ring's textbook time: 2 (P - 1) steps, each a latency and a slice of the vector.
TEST(Network, RingAllReduceTakesItsTextbookTime) {
  SimOptions sim = options(8);
  sim.network.link.bytes_per_second = 1e9;
  const Time end = run(sim, [](Endpoint& endpoint) -> Status {
    std::vector<float> values(80000, 1);
    return collective::all_reduce(endpoint, Group::world(8), values, {.algorithm = collective::Algorithm::ring});
  });
  EXPECT_EQ(end, 14 * (100us + 40us));
}

TEST(Sim, OptionsOutOfRangeAreRefusedWithTheValue) {
  const auto refused = [](const std::function<void(SimOptions&)>& spoil, const std::string& part) {
    SimOptions sim = options(4);
    spoil(sim);
    try {
      SimFabric fabric(sim);
      ADD_FAILURE() << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused([](SimOptions& sim) { sim.ranks = 0; }, "ranks is 0");
  refused([](SimOptions& sim) { sim.timeout = 0s; }, "time-out");
  refused([](SimOptions& sim) { sim.queue_messages = 0; }, "queue_messages");
  refused([](SimOptions& sim) { sim.network.link.bytes_per_second = 0; }, "bandwidth is 0");
  refused([](SimOptions& sim) { sim.network.rules.push_back({.from = RankSet{4}}); }, "rank 4");
  refused([](SimOptions& sim) { sim.faults.drops.push_back({RankSet{}, RankSet{}, 1.5, {}}); }, "probability 1.5");
  refused([](SimOptions& sim) { sim.faults.crashes.push_back({.rank = 4, .time = 1s}); }, "rank 4");
  refused([](SimOptions& sim) { sim.faults.crashes.push_back({.rank = 1}); }, "either a time or a point");
  refused([](SimOptions& sim) { sim.faults.partitions.push_back({RankSet{0}, {2s, 1s}}); }, "end after it begins");
  refused([](SimOptions& sim) { sim.speeds.push_back({RankSet{}, 0}); }, "factor 0");
  refused([](SimOptions& sim) { sim.poll_cost = 0s; }, "poll_cost");
  refused([](SimOptions& sim) { sim.delays.push_back({"step", RankSet{9}, {}}); }, "rank 9");
}

}  // namespace
}  // namespace starling::fabric
