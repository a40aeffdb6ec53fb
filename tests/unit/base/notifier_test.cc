// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/notifier.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace starling {
namespace {

using namespace std::chrono_literals;

TEST(Notifier, TimesOut) {
  Notifier notifier;
  for (const bool spin : {false, true}) {
    const auto begin = Notifier::Clock::now();
    EXPECT_FALSE(notifier.wait(notifier.ticket(), begin + 5ms, spin));
    EXPECT_GE(Notifier::Clock::now() - begin, 5ms);
  }
}

TEST(Notifier, AChangeBeforeTheWaitIsNotMissed) {
  Notifier notifier;
  const std::uint32_t ticket = notifier.ticket();
  notifier.notify();
  EXPECT_TRUE(notifier.wait(ticket, Notifier::Clock::now(), false));
}

// Two threads hand a number back and forth; a lost wake-up would end in the time-out.
TEST(Notifier, PingPongLosesNoWakeUp) {
  for (const bool spin : {false, true}) {
    Notifier notifier;
    std::atomic<int> turn{0};
    constexpr int kTurns = 2000;
    const auto play = [&](int parity) {
      for (int i = parity; i < kTurns; i += 2) {
        ASSERT_TRUE(notifier.wait_until([&] { return turn.load() == i; }, Notifier::Clock::now() + 20s, spin));
        turn = i + 1;
        notifier.wake();
      }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(turn, kTurns);
  }
}

TEST(UsableCores, IsNoMoreThanTheAffinityAllows) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace starling
