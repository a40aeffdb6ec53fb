// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/bell.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "starling/fabric/mpi/memory_file.h"

namespace starling::fabric::mpi {
namespace {

using namespace std::chrono_literals;

// In memory as processes share it; zeros are a bell.
class BellTest : public testing::Test {
 protected:
  MemoryFile file_ = MemoryFile::make(sizeof(Bell));
  MemoryFile same_ = MemoryFile::open(file_.place(), sizeof(Bell));
  Bell& bell_ = *reinterpret_cast<Bell*>(file_.bytes().data());
  Bell& others_ = *reinterpret_cast<Bell*>(same_.bytes().data());
};

TEST_F(BellTest, ARingBetweenTheLookAndTheWaitIsNotMissed) {
  const std::uint32_t ticket = bell_.ticket();
  others_.ring();
  const auto begin = std::chrono::steady_clock::now();
  bell_.wait(ticket, 30s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_NE(bell_.ticket(), ticket);
}

TEST_F(BellTest, WithoutARingTheTimePasses) {
  const auto begin = std::chrono::steady_clock::now();
  bell_.wait(bell_.ticket(), 20ms);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 15ms);
  bell_.wait(bell_.ticket(), -1s);  // Returns at once.
}

// One waits for each of many rings through its own mapping: a ring that is lost would cost it the whole limit.
TEST_F(BellTest, ManyRingsWakeASleeperEveryTime) {
  constexpr int kRings = 2000;
  std::atomic<int> value{0};
  std::atomic<int> seen{0};
  std::thread sleeper([&] {
    while (seen < kRings) {
      const std::uint32_t ticket = others_.ticket();
      if (value.load() > seen) {
        seen = value.load();
        continue;
      }
      others_.wait(ticket, 60s);
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i <= kRings; ++i) {
    value = i;
    bell_.ring();
    while (seen < i && std::chrono::steady_clock::now() - begin < 50s) std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
}

}  // namespace
}  // namespace starling::fabric::mpi
