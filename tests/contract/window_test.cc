// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <numeric>

#include "contract/fabrics.h"
#include "starling/base/shared_floats.h"
#include "starling/collective/collective.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

class WindowTest : public FabricTest {};
class WindowSizeTest : public SizedFabricTest {};
INSTANTIATE_ON_ALL_FABRICS(WindowTest);
INSTANTIATE_ON_ALL_FABRICS_AND_SIZES(WindowSizeTest);

Status barrier(Endpoint& endpoint) { return collective::barrier(endpoint, Group::world(endpoint.size())); }

TEST_P(WindowSizeTest, BeginsWithZerosAndKeepsWhatIsWritten) {
  run([&](Endpoint& endpoint) -> Status {
    const Rank writer = endpoint.size() - 1;
    auto window = endpoint.open_window("weights", floats(), 0);
    if (!window) return window.failure();
    EXPECT_EQ((*window)->size(), floats());
    EXPECT_EQ((*window)->home(), 0);
    EXPECT_EQ((*window)->name(), "weights");
    std::vector<float> values(floats(), -1);
    STARLING_TRY((*window)->read(0, values));
    EXPECT_EQ(std::ranges::count(values, 0.0F), static_cast<std::ptrdiff_t>(floats()));
    STARLING_TRY(barrier(endpoint));
    std::vector<float> written(floats());
    std::iota(written.begin(), written.end(), 1.0F);
    if (endpoint.rank() == writer) STARLING_TRY((*window)->write(0, written));
    STARLING_TRY(barrier(endpoint));
    STARLING_TRY((*window)->read(0, values));
    EXPECT_EQ(values, written);
    return barrier(endpoint);
  });
}

TEST_P(WindowSizeTest, NoAdditionIsLost) {
  run([&](Endpoint& endpoint) -> Status {
    constexpr int kTimes = 3;
    auto window = endpoint.open_window("sum", floats(), endpoint.size() - 1);
    if (!window) return window.failure();
    const std::vector<float> ones(floats(), static_cast<float>(endpoint.rank() + 1));
    for (int i = 0; i < kTimes; ++i) STARLING_TRY((*window)->add(0, ones));
    STARLING_TRY(barrier(endpoint));
    std::vector<float> values(floats());
    STARLING_TRY((*window)->read(0, values));
    const auto expected = static_cast<float>(kTimes * endpoint.size() * (endpoint.size() + 1) / 2);
    EXPECT_EQ(std::ranges::count(values, expected), static_cast<std::ptrdiff_t>(floats()));
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, RangesTouchOnlyThemselves) {
  run([&](Endpoint& endpoint) -> Status {
    const auto me = static_cast<std::size_t>(endpoint.rank());
    const auto size = static_cast<std::size_t>(endpoint.size());
    auto window = endpoint.open_window("parts", 7 * size, 0);
    if (!window) return window.failure();
    const std::vector<float> mine(5, static_cast<float>(endpoint.rank() + 1));
    STARLING_TRY((*window)->write(7 * me + 1, mine));
    STARLING_TRY((*window)->add(7 * me + 5, std::vector<float>{100}));
    STARLING_TRY(barrier(endpoint));
    std::vector<float> all(7 * size);
    STARLING_TRY((*window)->read(0, all));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float base = i % 7 >= 1 && i % 7 <= 5 ? static_cast<float>(i / 7 + 1) : 0.0F;
      EXPECT_EQ(all[i], base + (i % 7 == 5 ? 100.0F : 0.0F)) << i;
    }
    EXPECT_THROW((void)(*window)->read(7 * size - 1, std::span(all).first(2)), BrokenInvariant);
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, OpeningWaitsForTheHome) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() == 0) endpoint.sleep(20ms);
    auto window = endpoint.open_window("late", 10, 0);
    if (!window) return window.failure();
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, AWindowItsHomeDoesNotOpenTimesOut) {
  run([&](Endpoint& endpoint) -> Status {
    if (endpoint.rank() != 0) {
      auto window = endpoint.open_window("never", 10, 0, Deadline::after(10ms));
      EXPECT_FALSE(window.ok());
      if (!window.ok()) {
        EXPECT_EQ(window.failure().kind, FailureKind::timeout);
        EXPECT_NE(window.failure().message().find("'never' at rank 0"), std::string::npos) << window.failure().message();
      }
    }
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, AnotherSizeIsAMismatch) {
  run([&](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("sized", endpoint.rank() == 0 ? 10 : 11, 0);
    EXPECT_EQ(window.ok(), endpoint.rank() == 0);
    if (!window.ok()) {
      EXPECT_EQ(window.failure().kind, FailureKind::mismatch);
    }
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, WindowsOfOneNameAtDifferentHomesAreDifferent) {
  run([&](Endpoint& endpoint) -> Status {
    const Rank right = (endpoint.rank() + 1) % endpoint.size();
    auto mine = endpoint.open_window("own", 1, endpoint.rank());
    auto theirs = endpoint.open_window("own", 1, right);
    if (!mine) return mine.failure();
    if (!theirs) return theirs.failure();
    STARLING_TRY((*theirs)->write(0, std::vector<float>{static_cast<float>(endpoint.rank())}));
    STARLING_TRY(barrier(endpoint));
    std::vector<float> value(1);
    STARLING_TRY((*mine)->read(0, value));
    EXPECT_EQ(value[0], static_cast<float>((endpoint.rank() + endpoint.size() - 1) % endpoint.size()));
    return barrier(endpoint);
  });
}

TEST_P(WindowTest, AWindowEndsWithItsHome) {
  run([&](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("short", 10, 0);
    if (!window) return window.failure();
    STARLING_TRY(barrier(endpoint));
    if (endpoint.rank() == 0) return {};
    const Result<Message> gone = endpoint.receive(from(0));
    EXPECT_FALSE(gone.ok());
    const Status added = (*window)->add(0, std::vector<float>{1});
    EXPECT_FALSE(added.ok());
    if (!added) {
      EXPECT_EQ(added.failure().kind, FailureKind::peer_lost);
      EXPECT_EQ(added.failure().peer, 0);
    }
    return {};
  });
}

TEST_P(WindowTest, SharedMemoryIsTheWindowItself) {
  run([&](Endpoint& endpoint) -> Status {
    auto window = endpoint.open_window("shared", 4, 0);
    if (!window) return window.failure();
    const std::span<float> memory = (*window)->shared_memory();
    // Ranks of the simulator, and of several hosts, have no memory in common.
    EXPECT_EQ(memory.empty(), fabric_name() == "sim" || fabric_name() == "mpi_one_sided");
    if (!memory.empty()) {
      EXPECT_EQ(memory.size(), 4U);
      for (int i = 0; i < 1000; ++i) add_shared(memory[2], 1);
      STARLING_TRY(barrier(endpoint));
      std::vector<float> values(4);
      STARLING_TRY((*window)->read(0, values));
      EXPECT_EQ(values[2], static_cast<float>(1000 * endpoint.size()));
    }
    return barrier(endpoint);
  });
}

}  // namespace
}  // namespace starling::fabric
