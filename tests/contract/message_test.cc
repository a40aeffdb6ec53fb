// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "contract/fabrics.h"
#include "starling/collective/collective.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

class MessageTest : public FabricTest {};
class MessageSizeTest : public SizedFabricTest {};
INSTANTIATE_ON_ALL_FABRICS(MessageTest);
INSTANTIATE_ON_ALL_FABRICS_AND_SIZES(MessageSizeTest);

Payload numbered(std::uint64_t number) { return Payload::copy_of(std::span<const std::uint64_t>(&number, 1)); }
std::uint64_t number_in(const Message& message) { return message.payload.as<std::uint64_t>()[0]; }

// Waits on the fabric's own clock until a condition holds; false after ten seconds of it.
bool eventually(Endpoint& endpoint, FunctionRef<bool()> condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    endpoint.sleep(1ms);
  }
  return false;
}

TEST_P(MessageTest, KnowsRankAndSize) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(ranks()));
  run([&](Endpoint& endpoint) -> Status {
    EXPECT_EQ(endpoint.size(), ranks());
    ++seen[static_cast<std::size_t>(endpoint.rank())];
    return {};
  });
  for (const Rank rank : make_fabric(fabric_name(), options())->local_ranks()) EXPECT_EQ(seen[static_cast<std::size_t>(rank)], 1);
}

TEST_P(MessageSizeTest, ContentsArriveUnchanged) {
  run([&](Endpoint& endpoint) -> Status {
    std::vector<float> values(floats());
    std::iota(values.begin(), values.end(), static_cast<float>(endpoint.rank()));
    const Rank right = (endpoint.rank() + 1) % endpoint.size();
    const Rank left = (endpoint.rank() + endpoint.size() - 1) % endpoint.size();
    STARLING_TRY(endpoint.send(right, 3, Payload::copy_of(std::span<const float>(values))));
    Result<Message> message = endpoint.receive(from(left, 3));
    if (!message) return message.failure();
    EXPECT_EQ(message->source, left);
    EXPECT_EQ(message->tag, 3U);
    std::iota(values.begin(), values.end(), static_cast<float>(left));
    EXPECT_TRUE(std::ranges::equal(message->payload.as<float>(), values));
    return {};
  });
}

TEST_P(MessageTest, PayloadMovesWithoutACopy) {
  if (!one_process()) return;
  std::vector<std::atomic<const std::byte*>> sent(static_cast<std::size_t>(ranks()));
  run([&](Endpoint& endpoint) -> Status {
    Payload payload = Payload::allocate(1000);
    sent[static_cast<std::size_t>(endpoint.rank())] = payload.bytes().data();
    STARLING_TRY(endpoint.send((endpoint.rank() + 1) % endpoint.size(), 0, std::move(payload)));
    Result<Message> message = endpoint.receive(anything());
    if (!message) return message.failure();
    EXPECT_EQ(message->payload.bytes().data(), sent[static_cast<std::size_t>(message->source)]);
    return {};
  });
}

TEST_P(MessageTest, KeepsOrderPerSenderAcrossTags) {
  constexpr std::uint64_t kCount = 200;
  run([&](Endpoint& endpoint) -> Status {
    // Rank 0 receives from all, so that more is sent than the queues hold.
    if (endpoint.rank() != 0) {
      for (std::uint64_t i = 0; i < kCount; ++i) STARLING_TRY(endpoint.send(0, static_cast<Tag>(i % 3), numbered(i)));
      return {};
    }
    std::vector<std::uint64_t> next(static_cast<std::size_t>(endpoint.size()));
    for (std::uint64_t i = 0; i < kCount * static_cast<std::uint64_t>(endpoint.size() - 1); ++i) {
      Result<Message> message = endpoint.receive(anything());
      if (!message) return message.failure();
      std::uint64_t& expected = next[static_cast<std::size_t>(message->source)];
      EXPECT_EQ(number_in(*message), expected);
      EXPECT_EQ(message->sequence, expected);
      EXPECT_EQ(message->tag, expected % 3);
      ++expected;
    }
    return {};
  });
}

TEST_P(MessageTest, FiltersByTagAndSource) {
  run([&](Endpoint& endpoint) -> Status {
    const auto me = static_cast<std::uint64_t>(endpoint.rank());
    for (Rank to = 0; to < endpoint.size(); ++to) {
      STARLING_TRY(endpoint.send(to, 1, numbered(me * 10 + 1)));
      STARLING_TRY(endpoint.send(to, 2, numbered(me * 10 + 2)));
    }
    // Tag 2 first although tag 1 came first, from the highest rank down.
    for (Rank source = endpoint.size() - 1; source >= 0; --source) {
      Result<Message> message = endpoint.receive(from(source, 2));
      if (!message) return message.failure();
      EXPECT_EQ(number_in(*message), static_cast<std::uint64_t>(source) * 10 + 2);
    }
    for (int i = 0; i < endpoint.size(); ++i) {
      Result<Message> message = endpoint.receive(tagged(1));
      if (!message) return message.failure();
      EXPECT_EQ(number_in(*message), static_cast<std::uint64_t>(message->source) * 10 + 1);
    }
    EXPECT_FALSE(endpoint.poll(anything()));
    return {};
  });
}

TEST_P(MessageTest, AnyTagDoesNotTakeReservedOnes) {
  run([&](Endpoint& endpoint) -> Status {
    STARLING_TRY(endpoint.send(endpoint.rank(), kFirstReservedTag + 5, numbered(1)));
    STARLING_TRY(endpoint.send(endpoint.rank(), 5, numbered(2)));
    Result<Message> message = endpoint.receive(anything());
    if (!message) return message.failure();
    EXPECT_EQ(number_in(*message), 2U);
    message = endpoint.receive(tagged(kFirstReservedTag + 5));
    if (!message) return message.failure();
    EXPECT_EQ(number_in(*message), 1U);
    return {};
  });
}

TEST_P(MessageTest, ARankThatDoesNotExistIsABrokenInvariant) {
  run([&](Endpoint& endpoint) -> Status {
    EXPECT_THROW((void)endpoint.receive(from(endpoint.size())).ok(), BrokenInvariant);
    EXPECT_THROW((void)endpoint.poll(from(-2)), BrokenInvariant);
    EXPECT_THROW((void)endpoint.send(endpoint.size(), 0, {}).ok(), BrokenInvariant);
    EXPECT_THROW((void)collective::barrier(endpoint, Group({endpoint.rank(), endpoint.size()})).ok(), BrokenInvariant);
    return {};
  });
}

// Payloads of many sizes, empty ones among them: where time depends on size, order must not.
TEST_P(MessageTest, KeepsOrderWhateverTheSizes) {
  run([&](Endpoint& endpoint) -> Status {
    const std::vector<std::size_t> sizes{100000, 0, 50000, 0, 0, 8, 100000, 0, 1};
    const Rank right = (endpoint.rank() + 1) % endpoint.size();
    const Rank left = (endpoint.rank() + endpoint.size() - 1) % endpoint.size();
    for (const std::size_t size : sizes) STARLING_TRY(endpoint.send(right, 0, Payload::allocate(size)));
    for (std::uint64_t i = 0; i < sizes.size(); ++i) {
      Result<Message> message = endpoint.receive(from(left));
      if (!message) return message.failure();
      EXPECT_EQ(message->sequence, i);
      EXPECT_EQ(message->payload.size_bytes(), sizes[i]);
    }
    return {};
  });
}

TEST_P(MessageTest, PollTakesWhatIsThereAndNeverWaits) {
  run([&](Endpoint& endpoint) -> Status {
    EXPECT_FALSE(endpoint.poll(anything()));
    STARLING_TRY(endpoint.send(endpoint.rank(), 9, numbered(4)));
    std::optional<Message> message;
    EXPECT_TRUE(eventually(endpoint, [&] {
      EXPECT_FALSE(endpoint.poll(tagged(8)));
      return (message = endpoint.poll(tagged(9))).has_value();
    }));
    EXPECT_EQ(number_in(*message), 4U);
    return {};
  });
}

TEST_P(MessageTest, ALoopOfPollsGetsOn) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      endpoint.sleep(2ms);
      for (Rank to = 1; to < endpoint.size(); ++to) STARLING_TRY(endpoint.send(to, 1, {}));
      return {};
    }
    for (int polls = 0; polls < 100'000'000; ++polls) {
      if (endpoint.poll(from(0))) return {};
    }
    ADD_FAILURE() << "the message never came";
    return {};
  });
}

TEST_P(MessageTest, ASenderWaitsWhenTheQueueIsFull) {
  FabricOptions few = options();
  few.queue_messages = 4;
  run(few, [&](Endpoint& endpoint) -> Status {
    STARLING_TRY(collective::barrier(endpoint, Group::world(endpoint.size())));
    if (endpoint.rank() == 0) {
      endpoint.sleep(200ms);
      for (int i = 0; i < 6 * (endpoint.size() - 1); ++i) {
        const Result<Message> message = endpoint.receive(anything());
        if (!message) return message.failure();
      }
      return {};
    }
    const Time begin = endpoint.now();
    for (std::uint64_t i = 0; i < 4; ++i) STARLING_TRY(endpoint.send(0, 0, numbered(i)));
    // The fifth finds no room: a short deadline fails, a long one waits until the receiver has begun to read.
    const Status full = endpoint.send(0, 0, numbered(4), Deadline::after(1ms));
    EXPECT_FALSE(full.ok());
    if (!full) {
      EXPECT_EQ(full.failure().kind, FailureKind::timeout);
      EXPECT_EQ(full.failure().peer, 0);
      EXPECT_GE(full.failure().waited, 1ms);
    }
    STARLING_TRY(endpoint.send(0, 0, numbered(4)));
    EXPECT_GE(endpoint.now() - begin, 100ms);
    return endpoint.send(0, 0, numbered(5));
  });
}

TEST_P(MessageTest, TheBoundInBytesHoldsButALargeMessageCanPass) {
  FabricOptions small = options();
  small.queue_bytes = 1000;
  run(small, [&](Endpoint& endpoint) -> Status {
    STARLING_TRY(endpoint.send(endpoint.rank(), 0, Payload::allocate(5000)));
    EXPECT_FALSE(endpoint.send(endpoint.rank(), 0, Payload::allocate(1), Deadline::after(1ms)).ok());
    const Result<Message> large = endpoint.receive(anything());
    if (!large) return large.failure();
    STARLING_TRY(endpoint.send(endpoint.rank(), 0, Payload::allocate(600)));
    STARLING_TRY(endpoint.send(endpoint.rank(), 0, Payload::allocate(400)));
    EXPECT_FALSE(endpoint.send(endpoint.rank(), 0, Payload::allocate(1), Deadline::after(1ms)).ok());
    return {};
  });
}

Payload with_head(std::size_t payload_bytes, std::size_t head_bytes) {
  Payload payload = Payload::allocate(payload_bytes);
  payload.set_head(std::vector<std::byte>(head_bytes, std::byte{5}));
  return payload;
}

TEST_P(MessageTest, AHeadTravelsBesideThePayloadAndCounts) {
  FabricOptions small = options();
  small.queue_bytes = 1000;
  run(small, [&](Endpoint& endpoint) -> Status {
    const Rank me = endpoint.rank();
    Payload payload = with_head(300, 300);
    const std::byte* memory = payload.bytes().data();
    STARLING_TRY(endpoint.send(me, 0, std::move(payload)));
    EXPECT_EQ(endpoint.traffic().bytes_sent, 600U);
    EXPECT_FALSE(endpoint.send(me, 0, with_head(0, 401), Deadline::after(1ms)).ok());
    STARLING_TRY(endpoint.send(me, 0, with_head(0, 400)));
    Result<Message> message = endpoint.receive(anything());
    if (!message) return message.failure();
    EXPECT_EQ(message->payload.bytes().data(), memory);
    EXPECT_TRUE(std::ranges::equal(message->payload.head(), std::vector<std::byte>(300, std::byte{5})));
    EXPECT_EQ(endpoint.traffic().bytes_received, 600U);
    return endpoint.send(me, 0, with_head(600, 0), Deadline::after(1s));  // What was received takes no room.
  });
}

TEST_P(MessageTest, AReceiveTimesOutAndSaysWhoWhatAndHowLong) {
  run([&](Endpoint& endpoint) -> Status {
    const Rank peer = (endpoint.rank() + 1) % endpoint.size();
    const Time begin = endpoint.now();
    const Result<Message> message = endpoint.receive(from(peer, 7), Deadline::after(20ms));
    EXPECT_GE(endpoint.now() - begin, 20ms);
    EXPECT_FALSE(message.ok());
    if (!message.ok()) {
      const Failure& failure = message.failure();
      EXPECT_EQ(failure.kind, FailureKind::timeout);
      EXPECT_EQ(failure.rank, endpoint.rank());
      EXPECT_EQ(failure.peer, peer);
      EXPECT_GE(failure.waited, 20ms);
      EXPECT_NE(failure.message().find("tag 7 from rank " + std::to_string(peer)), std::string::npos) << failure.message();
    }
    return collective::barrier(endpoint, Group::world(endpoint.size()));  // Nobody leaves while others still wait for it.
  });
}

TEST_P(MessageTest, TheStandardDeadlineIsTheFabricsTimeout) {
  FabricOptions hasty = options();
  hasty.timeout = 200ms;
  run(hasty, [&](Endpoint& endpoint) -> Status {
    // The last rank keeps the simulator from calling it a deadlock, by having something to do.
    if (endpoint.rank() == endpoint.size() - 1) {
      endpoint.sleep(1s);
      return {};
    }
    const Time begin = endpoint.now();
    const Result<Message> message = endpoint.receive(from(endpoint.size() - 1));
    EXPECT_GE(endpoint.now() - begin, 200ms);
    EXPECT_FALSE(message.ok());
    if (!message.ok()) {
      EXPECT_EQ(message.failure().kind, FailureKind::timeout);
    }
    return {};
  });
}

TEST_P(MessageTest, SleepAndNowAgree) {
  run([&](Endpoint& endpoint) -> Status {
    const Time begin = endpoint.now();
    endpoint.sleep(3ms);
    EXPECT_GE(endpoint.now() - begin, 3ms);
    return {};
  });
}

TEST_P(MessageTest, ComputeRunsTheWorkAndPassesExceptionsOn) {
  run([&](Endpoint& endpoint) -> Status {
    int result = 0;
    endpoint.compute(1, [&] { result = endpoint.rank() + 1; });
    EXPECT_EQ(result, endpoint.rank() + 1);
    EXPECT_THROW(endpoint.compute(1, [] { throw std::runtime_error("from the work"); }), std::runtime_error);
    return {};
  });
}

TEST_P(MessageTest, RandomStreamsAreThoseOfSeedRankAndPurpose) {
  FabricOptions seeded = options();
  seeded.seed = 77;
  run(seeded, [&](Endpoint& endpoint) -> Status {
    RandomStream expected(77, static_cast<std::uint32_t>(endpoint.rank()), "shuffle");
    RandomStream stream = endpoint.random("shuffle");
    for (int i = 0; i < 10; ++i) EXPECT_EQ(stream.next_u64(), expected.next_u64());
    return {};
  });
}

TEST_P(MessageTest, ADelayAtANamedPointHoldsUpTheRanksItNames) {
  FabricOptions delayed = options();
  delayed.delays.push_back({"before push", {0}, Distribution::constant(5ms)});
  run(delayed, [&](Endpoint& endpoint) -> Status {
    const Time begin = endpoint.now();
    endpoint.pass("before pull");
    if (fabric_name() == "sim") {
      EXPECT_EQ(endpoint.now(), begin);
    }
    endpoint.pass("before push");
    if (endpoint.rank() == 0) {
      EXPECT_GE(endpoint.now() - begin, 5ms);
    }
    if (endpoint.rank() != 0 && fabric_name() == "sim") {
      EXPECT_EQ(endpoint.now(), begin);
    }
    return {};
  });
}

// 200 seeds of random traffic (fewer where a fabric takes long to make): everybody sends random messages to random ranks at random moments
// and reads in between. Order is kept, nothing is lost, it ends.
TEST_P(MessageTest, RandomTrafficKeepsOrderAndLosesNothing) {
  const std::uint64_t seeds = has_one_process() ? 200 : 40;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FabricOptions tight = options();
    tight.seed = seed;
    tight.queue_messages = 1 + seed % 5;
    run(tight, [&](Endpoint& endpoint) -> Status {
      RandomStream random = endpoint.random("traffic");
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(endpoint.size()));
      std::vector<std::uint64_t> received(static_cast<std::size_t>(endpoint.size()));
      int finished = 0;
      const auto take = [&](const Message& message) {
        if (message.tag == 99) {
          ++finished;
          EXPECT_EQ(number_in(message), received[static_cast<std::size_t>(message.source)]);
        } else {
          EXPECT_EQ(number_in(message), received[static_cast<std::size_t>(message.source)]++);
        }
      };
      // A rank that finds the receiver's queue full reads its own, so that two full queues do not stop each other.
      const auto deliver = [&](Rank to, Tag tag, std::uint64_t number) -> Status {
        while (!endpoint.send(to, tag, numbered(number), Deadline::after(100us))) {
          if (endpoint.now() > 60s) return Failure{FailureKind::timeout, endpoint.rank(), to, "room", 60s, "the test's own limit"};
          while (std::optional<Message> message = endpoint.poll(anything())) take(*message);
        }
        return {};
      };
      for (int i = 0; i < 20; ++i) {
        const auto to = static_cast<Rank>(random.below(static_cast<std::uint64_t>(endpoint.size())));
        STARLING_TRY(deliver(to, static_cast<Tag>(random.below(3)), sent[static_cast<std::size_t>(to)]++));
        if (random.uniform() < 0.3) {
          if (std::optional<Message> message = endpoint.poll(anything())) take(*message);
        }
      }
      for (Rank to = 0; to < endpoint.size(); ++to) STARLING_TRY(deliver(to, 99, sent[static_cast<std::size_t>(to)]));
      while (finished < endpoint.size()) {
        Result<Message> message = endpoint.receive(anything());
        if (!message) return message.failure();
        take(*message);
      }
      return {};
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace starling::fabric
