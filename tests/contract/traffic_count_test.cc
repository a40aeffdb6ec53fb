// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What docs/collectives.md says each operation sends, counted.
#include <atomic>
#include <bit>
#include <functional>

#include "contract/fabrics.h"
#include "starling/collective/collective.h"
#include "starling/collective/exchange.h"

namespace starling::collective {
namespace {

using fabric::Endpoint;
using fabric::Group;
using fabric::test_name;
using fabric::Traffic;

class TrafficCountTest : public fabric::FabricTest {
 protected:
  struct Expected {
    std::uint64_t messages;
    std::uint64_t floats;
  };

  // Runs the operation alone and compares each rank's sent messages and bytes.
  void expect_traffic(const std::function<Status(Endpoint&, std::span<float>)>& operation, std::size_t size,
                      const std::function<Expected(int)>& expected) {
    run([&](Endpoint& endpoint) -> Status {
      std::vector<float> values(size, 1);
      STARLING_TRY(operation(endpoint, values));
      const Expected want = expected(endpoint.rank());
      EXPECT_EQ(endpoint.traffic().messages_sent, want.messages) << "rank " << endpoint.rank() << ", " << size << " floats";
      EXPECT_EQ(endpoint.traffic().bytes_sent, want.floats * sizeof(float)) << "rank " << endpoint.rank() << ", " << size << " floats";
      return {};
    });
  }
};
INSTANTIATE_ON_ALL_FABRICS(TrafficCountTest);

// With these sizes all slices are the same; in the longer vectors, slices of up to three ranks take two segments each.
std::vector<std::size_t> sizes(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  return {count * 100, count * (ranks <= 3 ? kSegmentFloats + 1000 : 40000)};
}

std::uint64_t messages_for(std::size_t floats) { return segments(floats); }

TEST_P(TrafficCountTest, Flat) {
  const auto others = static_cast<std::uint64_t>(ranks() - 1);
  for (const std::size_t n : sizes(ranks())) {
    expect_traffic([](Endpoint& e, std::span<float> v) { return all_reduce(e, Group::world(e.size()), v, {.algorithm = Algorithm::flat}); },
                   n,
                   [&](int rank) -> Expected {
                     const std::uint64_t messages = ranks() == 1 ? 0 : rank == 0 ? others : 1;
                     return {messages * messages_for(n), messages * n};
                   });
  }
}

TEST_P(TrafficCountTest, DirectAndRing) {
  const auto others = static_cast<std::uint64_t>(ranks() - 1);
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
    for (const std::size_t n : sizes(ranks())) {
      const std::size_t slice = n / static_cast<std::size_t>(ranks());
      const Expected half{others * messages_for(slice), others * slice};
      expect_traffic([&](Endpoint& e, std::span<float> v) { return reduce_scatter(e, Group::world(e.size()), v, algorithm); }, n,
                     [&](int) { return half; });
      expect_traffic([&](Endpoint& e, std::span<float> v) { return all_gather(e, Group::world(e.size()), v, algorithm); }, n,
                     [&](int) { return half; });
      expect_traffic([&](Endpoint& e, std::span<float> v) { return all_reduce(e, Group::world(e.size()), v, {.algorithm = algorithm}); }, n,
                     [&](int) -> Expected {
                       return {2 * half.messages, 2 * half.floats};
                     });
    }
  }
}

// Slices that differ, or are empty: together the members send what the formula says.
TEST_P(TrafficCountTest, UnevenSlices) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
    for (const std::size_t n : {1U, 7U, 1001U}) {
      const bool sees_all = one_process();
      std::atomic<std::uint64_t> sent{0};
      run([&](Endpoint& endpoint) -> Status {
        std::vector<float> values(n, 1);
        STARLING_TRY(all_reduce(endpoint, Group::world(endpoint.size()), values, {.algorithm = algorithm}));
        sent += endpoint.traffic().bytes_sent;
        if (sees_all) return {};
        float others = static_cast<float>(sent);
        STARLING_TRY(all_reduce(endpoint, Group::world(endpoint.size()), std::span(&others, 1), {.algorithm = Algorithm::flat}));
        sent = static_cast<std::uint64_t>(others);
        return {};
      });
      EXPECT_EQ(sent, 2 * static_cast<std::uint64_t>(ranks() - 1) * n * sizeof(float)) << to_string(algorithm) << ' ' << n;
    }
  }
}

TEST_P(TrafficCountTest, TheNativeAllReduceSendsNothing) {
  if (fabric_name() == "sim") return;
  expect_traffic([](Endpoint& e, std::span<float> v) { return all_reduce(e, Group::world(e.size()), v); }, 1000,
                 [](int) -> Expected {
                   return {0, 0};
                 });
}

// On a network of pure latency, the time is the number of steps one after the other.
TEST(StepCountTest, IsThatOfTheTable) {
  using Operation = std::function<Status(Endpoint&, std::span<float>)>;
  const auto steps = [](int ranks, const Operation& operation) {
    fabric::SimOptions options;
    options.ranks = ranks;
    options.network.link.latency = std::chrono::milliseconds(1);
    fabric::SimFabric fabric(options);
    fabric::expect_success(fabric, [&](Endpoint& endpoint) -> Status {
      std::vector<float> values(1000, 1);
      return operation(endpoint, values);
    });
    return fabric.end_time() / std::chrono::milliseconds(1);
  };
  const auto reduce = [](Algorithm algorithm) -> Operation {
    return
        [=](Endpoint& e, std::span<float> v) { return all_reduce(e, Group::world(e.size()), v, {.algorithm = algorithm, .subgroup = 4}); };
  };
  for (const int ranks : {2, 3, 5, 8, 16}) {
    const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
    const auto depth = [](int members) {  // Of a binomial tree: the most bits set in a position.
      int bits = 0;
      for (unsigned position = 0; position < static_cast<unsigned>(members); ++position) bits = std::max(bits, std::popcount(position));
      return bits;
    };
    EXPECT_EQ(steps(ranks, reduce(Algorithm::flat)), 2) << ranks;
    EXPECT_EQ(steps(ranks, reduce(Algorithm::direct)), 2) << ranks;
    EXPECT_EQ(steps(ranks, reduce(Algorithm::ring)), 2 * (ranks - 1)) << ranks;
    EXPECT_EQ(steps(ranks, reduce(Algorithm::hierarchical)), 1 + (ranks > 4 ? 2 : 0) + depth(std::min(ranks, 4))) << ranks;
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
      const int expected = algorithm == Algorithm::ring ? ranks - 1 : 1;
      EXPECT_EQ(steps(ranks, [&](Endpoint& e, std::span<float> v) { return reduce_scatter(e, Group::world(e.size()), v, algorithm); }),
                expected);
      EXPECT_EQ(steps(ranks, [&](Endpoint& e, std::span<float> v) { return all_gather(e, Group::world(e.size()), v, algorithm); }),
                expected);
    }
    EXPECT_EQ(steps(ranks, [](Endpoint& e, std::span<float> v) { return broadcast(e, Group::world(e.size()), v); }), depth(ranks)) << ranks;
    EXPECT_EQ(steps(ranks, [](Endpoint& e, std::span<float>) { return barrier(e, Group::world(e.size())); }), rounds) << ranks;
  }
}

// Children of a member in the binomial tree of `size` members.
std::uint64_t children(int position, int size) {
  std::uint64_t count = 0;
  for (int bit = 1; bit < size && (position & bit) == 0; bit *= 2) count += position + bit < size ? 1 : 0;
  return count;
}

TEST_P(TrafficCountTest, Broadcast) {
  for (const std::size_t n : sizes(ranks())) {
    expect_traffic([](Endpoint& e, std::span<float> v) { return broadcast(e, Group::world(e.size()), v); }, n,
                   [&](int rank) -> Expected {
                     return {children(rank, ranks()) * messages_for(n), children(rank, ranks()) * n};
                   });
  }
}

TEST_P(TrafficCountTest, Barrier) {
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(ranks() - 1)));
  expect_traffic([](Endpoint& e, std::span<float>) { return barrier(e, Group::world(e.size())); }, 0,
                 [&](int) -> Expected {
                   return {rounds, 0};
                 });
}

TEST_P(TrafficCountTest, Hierarchical) {
  constexpr int kSubgroup = 3;
  const int leaders = (ranks() + kSubgroup - 1) / kSubgroup;
  // A length that every number of leaders here divides.
  for (const std::size_t n : {std::size_t{720}, std::size_t{720} * 400}) {
    expect_traffic(
        [](Endpoint& e, std::span<float> v) {
          return all_reduce(e, Group::world(e.size()), v, {.algorithm = Algorithm::hierarchical, .subgroup = kSubgroup});
        },
        n,
        [&](int rank) -> Expected {
          if (ranks() == 1) return {0, 0};
          const int position = rank % kSubgroup;
          const int members = std::min(kSubgroup, ranks() - (rank - position));
          const std::uint64_t down = children(position, members);
          if (position != 0) return {(1 + down) * messages_for(n), (1 + down) * n};
          const std::size_t slice = n / static_cast<std::size_t>(leaders);
          const auto between = 2 * static_cast<std::uint64_t>(leaders - 1);
          return {between * messages_for(slice) + down * messages_for(n), between * slice + down * n};
        });
  }
}

}  // namespace
}  // namespace starling::collective
