// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/run/signals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "starling/fabric/sim/sim_fabric.h"

namespace starling::run {
namespace {

using namespace std::chrono_literals;
using fabric::Endpoint;
using fabric::Rank;

fabric::SimOptions options(int ranks, std::size_t queue_messages = 64) {
  fabric::SimOptions result;
  result.ranks = ranks;
  result.queue_messages = queue_messages;
  return result;
}

std::vector<std::byte> bytes_of(int value) { return {static_cast<std::byte>(value)}; }

TEST(Signals, ToHaltReachesThoseWhoAreToldAndNobodyElse) {
  fabric::SimFabric fabric(options(3));
  const fabric::RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    if (endpoint.rank() == 0) signals.tell_to_halt(std::vector<Rank>{2}, 7);
    endpoint.sleep(1s);
    signals.look();
    EXPECT_EQ(signals.told_to_halt(7), endpoint.rank() == 2);
    EXPECT_FALSE(signals.told_to_halt(6));
    EXPECT_FALSE(signals.told_to_halt(8));
    endpoint.sleep(1s);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Signals, WhatIsSaidOfAnEarlierStretchIsForgotten) {
  fabric::SimFabric fabric(options(2));
  const fabric::RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    if (endpoint.rank() == 0) {
      signals.tell_to_halt(std::vector<Rank>{1}, 1);
      signals.tell_to_halt(std::vector<Rank>{1}, 2);
    }
    endpoint.sleep(1s);
    signals.look();
    EXPECT_FALSE(signals.told_to_halt(1));
    EXPECT_EQ(signals.told_to_halt(2), endpoint.rank() == 1);
    endpoint.sleep(1s);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Signals, GivingUpReachesAllWithItsReason) {
  fabric::SimFabric fabric(options(4));
  const fabric::RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    if (endpoint.rank() == 1) {
      endpoint.sleep(50ms);
      signals.tell_given_up("the loss of worker 1 is not finite");
      endpoint.sleep(1s);
      return {};
    }
    signals.await_given_up(10s);
    EXPECT_EQ(signals.given_up().value_or(""), "the loss of worker 1 is not finite");
    EXPECT_LT(endpoint.now(), 1s);
    endpoint.sleep(1s);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

TEST(Signals, WaitingForTheNewsThatTheRunIsGivenUpEndsInTime) {
  fabric::SimFabric fabric(options(2));
  const fabric::RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    signals.await_given_up(200ms);
    EXPECT_FALSE(signals.given_up());
    EXPECT_EQ(endpoint.now(), 200ms);
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

// However often it asks, there is one question and one report under way per rank, so a queue of two messages is never full of them.
TEST(Signals, NobodyIsAskedAgainBeforeItHasAnswered) {
  fabric::SimFabric fabric(options(3, 2));
  std::vector<int> reports(3);
  const fabric::RunReport report = fabric.run([&](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    if (endpoint.rank() > 0) {
      for (int i = 0; i < 4; ++i) {
        endpoint.sleep(100ms);
        signals.look();
        EXPECT_TRUE(signals.report_wanted()) << i;
        signals.report(bytes_of(endpoint.rank()));
        EXPECT_FALSE(signals.report_wanted()) << i;
        signals.look();
        EXPECT_FALSE(signals.report_wanted()) << "asked twice, round " << i;
      }
      endpoint.sleep(1s);
      return {};
    }
    while (endpoint.now() < 450ms) {
      signals.ask_for_reports();
      signals.take_reports([&](Rank rank, std::span<const std::byte> bytes) {
        EXPECT_EQ(std::to_integer<int>(bytes[0]), rank);
        ++reports[static_cast<std::size_t>(rank)];
      });
      endpoint.sleep(5ms);
    }
    return {};
  });
  EXPECT_EQ(report.summary(), "");
  EXPECT_EQ(reports, (std::vector<int>{0, 4, 4}));
}

TEST(Signals, AreNotTakenForMessagesOfAStrategy) {
  fabric::SimFabric fabric(options(2));
  const fabric::RunReport report = fabric.run([](Endpoint& endpoint) -> Status {
    Signals signals(endpoint);
    if (endpoint.rank() == 0) {
      signals.tell_to_halt(std::vector<Rank>{1}, 1);
      return endpoint.send(1, 5, fabric::Payload::allocate(3));
    }
    endpoint.sleep(1s);
    Result<fabric::Message> message = endpoint.receive(fabric::anything());
    if (!message) return message.failure();
    EXPECT_EQ(message->tag, 5U);
    signals.look();
    EXPECT_TRUE(signals.told_to_halt(1));
    return {};
  });
  EXPECT_EQ(report.summary(), "");
}

}  // namespace
}  // namespace starling::run
