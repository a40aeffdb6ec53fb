// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/metered_endpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>

#include "starling/collective/collective.h"
#include "starling/fabric/sim/sim_fabric.h"
#include "starling/fabric/threads/threads_fabric.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

SimOptions options(int ranks) {
  SimOptions result;
  result.ranks = ranks;
  result.network.link.latency = 100us;
  return result;
}

void run(Fabric& fabric, const Body& body) {
  const RunReport report = fabric.run(body);
  EXPECT_EQ(report.summary(), "");
}

TEST(MeteredEndpoint, AReceiveWaitsFromTheCallToTheArrival) {
  SimFabric fabric(options(2));
  run(fabric, [](Endpoint& endpoint) -> Status {
    MeteredEndpoint metered(endpoint);
    if (metered.rank() == 1) {
      metered.sleep(3ms);
      STARLING_TRY(metered.send(0, 1, Payload::allocate(1000), Deadline::standard()));
      STARLING_TRY(metered.send(0, 1, Payload::allocate(500), Deadline::standard()));
      EXPECT_EQ(metered.waited(), 0ms);
      EXPECT_EQ(metered.bytes_moved(), 1500U);
      return {};
    }
    metered.compute(1, [] {});
    metered.sleep(1ms);
    const Time begin = metered.now();
    Result<Message> first = metered.receive(from(1), Deadline::standard());
    if (!first) return first.failure();
    EXPECT_EQ(metered.waited(), 3100us - begin);
    metered.sleep(1ms);
    Result<Message> second = metered.receive(from(1), Deadline::standard());  // It is here already.
    if (!second) return second.failure();
    EXPECT_EQ(second->payload.size_bytes(), 500U);
    EXPECT_EQ(metered.waited(), 3100us - begin);
    EXPECT_FALSE(metered.receive(from(0), Deadline::after(2ms)).ok());  // In vain.
    EXPECT_EQ(metered.waited(), 5100us - begin);
    EXPECT_EQ(metered.bytes_moved(), 0U);
    return {};
  });
}

TEST(MeteredEndpoint, ASendThatFindsNoRoomWaits) {
  SimOptions sim = options(2);
  sim.queue_messages = 1;
  SimFabric fabric(sim);
  run(fabric, [](Endpoint& endpoint) -> Status {
    MeteredEndpoint metered(endpoint);
    if (metered.rank() == 0) {
      STARLING_TRY(metered.send(1, 1, Payload::allocate(10), Deadline::standard()));
      EXPECT_EQ(metered.waited(), 0ms);
      STARLING_TRY(metered.send(1, 1, Payload::allocate(10), Deadline::standard()));
      EXPECT_EQ(metered.waited(), metered.now());
      EXPECT_GE(metered.waited(), 7ms);
      return {};
    }
    metered.sleep(7ms);
    for (int i = 0; i < 2; ++i) {
      const Result<Message> message = metered.receive(from(0), Deadline::standard());
      if (!message) return message.failure();
    }
    return {};
  });
}

TEST(MeteredEndpoint, WindowsElsewhereCount) {
  SimFabric sim(options(2));
  FabricOptions two;
  two.ranks = 2;
  ThreadsFabric threads(two);
  for (Fabric* fabric : {static_cast<Fabric*>(&sim), static_cast<Fabric*>(&threads)}) {
    run(*fabric, [](Endpoint& endpoint) -> Status {
      MeteredEndpoint metered(endpoint);
      Result<std::shared_ptr<Window>> window = metered.open_window("w", 100, 0, Deadline::standard());
      if (!window) return window.failure();
      EXPECT_EQ((*window)->name(), "w");
      EXPECT_EQ((*window)->home(), 0);
      EXPECT_EQ((*window)->size(), 100U);
      std::vector<float> values(10, 1);
      STARLING_TRY((*window)->write(static_cast<std::size_t>(10 * metered.rank()), values));
      STARLING_TRY((*window)->add(0, std::span<const float>(values).first(5)));
      STARLING_TRY((*window)->read(50, values));
      EXPECT_EQ(values[0], 0);
      EXPECT_EQ(metered.bytes_moved(), metered.rank() == 0 ? 0U : 4U * (10 + 5 + 10));
      EXPECT_EQ(metered.waited(), 0ms);
      return collective::barrier(endpoint, Group::world(2));
    });
  }
}

TEST(MeteredEndpoint, PassesTheRestOn) {
  SimFabric fabric(options(3));
  run(fabric, [](Endpoint& endpoint) -> Status {
    MeteredEndpoint metered(endpoint);
    EXPECT_EQ(metered.rank(), endpoint.rank());
    EXPECT_EQ(metered.size(), 3);
    EXPECT_EQ(metered.incarnation(), 0);
    EXPECT_EQ(metered.peer((metered.rank() + 1) % 3), PeerState::alive);
    EXPECT_TRUE(metered.departures().empty());
    EXPECT_FALSE(metered.poll(anything()));
    RandomStream stream = metered.random("x");
    EXPECT_EQ(stream.next_u64(), endpoint.random("x").next_u64());
    std::vector<float> values(9, 1);
    STARLING_TRY(collective::all_reduce(metered, Group::world(3), values));
    EXPECT_EQ(values[8], 3);
    EXPECT_EQ(metered.traffic().bytes_sent, metered.bytes_moved());
    EXPECT_GT(metered.bytes_moved(), 0U);
    EXPECT_GT(metered.waited(), 0ms);
    return {};
  });
}

// An endpoint whose native all-reduces take the times they are told to.
class ScriptedEndpoint final : public Endpoint {
 public:
  struct Step {
    Duration duration = Duration::zero();
    bool ok = true;
  };

  std::deque<Step> steps{};

  Rank rank() const override { return 0; }
  int size() const override { return 4; }
  Time now() const override { return now_; }
  void sleep(Duration duration) override { now_ += duration; }
  void compute(double /*units*/, FunctionRef<void()> work) override { work(); }
  void pass(std::string_view /*point*/) override {}
  Status send(Rank /*to*/, Tag /*tag*/, Payload /*payload*/, Deadline /*deadline*/) override { return {}; }
  Result<Message> receive(const Filter& /*filter*/, Deadline /*deadline*/) override { return Message{}; }
  std::optional<Message> poll(const Filter& /*filter*/) override { return std::nullopt; }
  Result<std::shared_ptr<Window>> open_window(std::string_view /*name*/, std::size_t /*size*/, Rank /*home*/,
                                              Deadline /*deadline*/) override {
    return Failure{};
  }
  PeerState peer(Rank /*rank*/) const override { return PeerState::alive; }
  std::vector<Departure> departures() const override { return {}; }
  Traffic traffic() const override { return {}; }
  RandomStream random(std::string_view purpose) const override { return {1, 0, purpose}; }
  std::optional<Status> native_all_reduce(const Group& /*group*/, std::span<float> /*values*/, Deadline /*deadline*/) override {
    if (steps.empty()) return std::nullopt;
    const Step step = steps.front();
    steps.pop_front();
    now_ += step.duration;
    return step.ok ? Status() : Status(Failure{});
  }

 private:
  Time now_ = Time::zero();
};

TEST(MeteredEndpoint, ANativeAllReduceWaitsForWhatItTakesBeyondTheShortest) {
  ScriptedEndpoint scripted;
  MeteredEndpoint metered(scripted);
  std::vector<float> values(1000);
  const auto reduce = [&](std::size_t size, Duration duration, bool ok = true) {
    scripted.steps.push_back({duration, ok});
    const std::optional<Status> status = metered.native_all_reduce(Group::world(4), std::span(values).first(size), Deadline::standard());
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->ok(), ok);
  };
  reduce(1000, 5ms);
  EXPECT_EQ(metered.waited(), 0ms);  // Nothing to compare with.
  reduce(1000, 7ms);
  EXPECT_EQ(metered.waited(), 2ms);
  reduce(1000, 3ms);  // The work takes no longer than that.
  EXPECT_EQ(metered.waited(), 2ms);
  reduce(1000, 5ms);
  EXPECT_EQ(metered.waited(), 4ms);
  reduce(10, 8ms);  // Another length has its own.
  EXPECT_EQ(metered.waited(), 4ms);
  reduce(10, 9ms);
  EXPECT_EQ(metered.waited(), 5ms);
  const std::uint64_t bytes = 4 * (2 * 1000 * 4 * 3 / 4) + 2 * (2 * 10 * 4 * 3 / 4);
  EXPECT_EQ(metered.bytes_moved(), bytes);
  reduce(10, 1ms, false);  // Given up: all of it was waiting, and it is not what the work takes.
  EXPECT_EQ(metered.waited(), 6ms);
  reduce(10, 8ms);
  EXPECT_EQ(metered.waited(), 6ms);
}

TEST(MeteredEndpoint, AFabricWithoutANativeAllReduceHasNone) {
  ScriptedEndpoint scripted;
  MeteredEndpoint metered(scripted);
  std::vector<float> values(10);
  EXPECT_FALSE(metered.native_all_reduce(Group::world(4), values, Deadline::standard()).has_value());
  EXPECT_EQ(metered.bytes_moved(), 0U);
}

}  // namespace
}  // namespace starling::fabric
