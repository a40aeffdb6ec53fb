// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Messages that are offered: sent without waiting and without a promise.
#include <atomic>

#include "contract/fabrics.h"

namespace starling::fabric {
namespace {

constexpr Tag kOffer = 1;
constexpr Tag kGo = 2;
constexpr Tag kEnd = 3;

Payload number(std::uint64_t value) { return Payload::copy_of(std::span<const std::uint64_t>(&value, 1)); }

class OfferTest : public FabricTest {};

// The receiver reads nothing until it is told to, so that the queue is full after so many as it takes.
TEST_P(OfferTest, IsRefusedAtOnceWhereThereIsNoRoom) {
  FabricOptions options = this->options();
  options.queue_messages = 3;
  std::atomic<int> failures = 0;
  run(options, [&](Endpoint& endpoint) -> Status {
    if (endpoint.size() < 2 || endpoint.rank() > 1) return {};
    if (endpoint.rank() == 0) {
      for (std::uint64_t i = 0; i < 3; ++i) failures += endpoint.offer(1, kOffer, number(i)) ? 0 : 1;
      const Time before = endpoint.now();
      failures += endpoint.offer(1, kOffer, number(3)) ? 1 : 0;
      failures += endpoint.now() - before < std::chrono::seconds(1) ? 0 : 1;
      STARLING_TRY(endpoint.send(0, kGo, {}));
      Result<Message> go = endpoint.receive(from(0, kGo));
      if (!go) return go.failure();
      return endpoint.send(1, kEnd, {});  // Waits for room, as a message that is sent does.
    }
    endpoint.sleep(std::chrono::milliseconds(20));
    for (std::uint64_t i = 0; i < 3; ++i) {
      Result<Message> message = endpoint.receive(from(0));
      if (!message) return message.failure();
      failures += message->tag == kOffer && message->payload.as<std::uint64_t>()[0] == i ? 0 : 1;
    }
    Result<Message> end = endpoint.receive(from(0));
    if (!end) return end.failure();
    failures += end->tag == kEnd ? 0 : 1;
    return {};
  });
  EXPECT_EQ(failures, 0);
}

TEST_P(OfferTest, IsRefusedByARankThatIsGone) {
  std::atomic<int> failures = 0;
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0 || endpoint.size() < 2) return {};
    for (int i = 0; i < 1000 && endpoint.peer(1) == PeerState::alive; ++i) endpoint.sleep(std::chrono::milliseconds(1));
    failures += endpoint.offer(1, kOffer, number(1)) ? 1 : 0;
    return {};
  });
  EXPECT_EQ(failures, 0);
}

INSTANTIATE_ON_ALL_FABRICS(OfferTest);

// Faults that are limited to offers leave everything else alone.
TEST(OfferInSim, OnlyOffersAreDropped) {
  SimOptions options;
  options.ranks = 2;
  options.queue_messages = 1000;
  options.faults.drops = {{.probability = 0.5, .offered_only = true}};
  int offered = 0;
  int sent = 0;
  SimFabric fabric(options);
  expect_success(fabric, [&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) {
      for (std::uint64_t i = 0; i < 200; ++i) {
        EXPECT_TRUE(endpoint.offer(1, kOffer, number(i)));
        STARLING_TRY(endpoint.send(1, kGo, number(i)));
      }
      return endpoint.send(1, kEnd, {});
    }
    for (;;) {
      Result<Message> message = endpoint.receive(from(0));
      if (!message) return message.failure();
      if (message->tag == kEnd) return {};
      ++(message->tag == kOffer ? offered : sent);
    }
  });
  EXPECT_EQ(sent, 200);
  EXPECT_GT(offered, 60);
  EXPECT_LT(offered, 140);
}

}  // namespace
}  // namespace starling::fabric
