// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/collective/collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "contract/fabrics.h"

namespace starling::collective {
namespace {

using fabric::Endpoint;
using fabric::Group;
using fabric::kSizes;
using fabric::sized_test_name;
using fabric::test_name;

class CollectiveTest : public fabric::FabricTest {};
class CollectiveSizeTest : public fabric::SizedFabricTest {};
INSTANTIATE_ON_ALL_FABRICS(CollectiveTest);
INSTANTIATE_ON_ALL_FABRICS_AND_SIZES(CollectiveSizeTest);

// Values of mixed sign and size, so that their sums depend on the order of addition. A hash instead of a random stream: millions are
// needed.
std::vector<float> values_of(int rank, std::size_t size) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    std::uint32_t hash = (static_cast<std::uint32_t>(i) * 31 + static_cast<std::uint32_t>(rank)) * 2654435761U;
    hash = (hash ^ hash >> 15) * 2246822519U;
    values[i] = static_cast<float>(static_cast<std::int32_t>(hash)) * (rank % 3 == 0 ? 1e-9F : 1e-6F);
  }
  return values;
}

// The serial references: sums in the order the algorithm promises.
std::vector<float> sum_in_order(const std::vector<std::vector<float>>& terms) {
  std::vector<float> sum = terms[0];
  for (std::size_t rank = 1; rank < terms.size(); ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[rank][i];
  }
  return sum;
}

std::vector<std::vector<float>> all_values(int ranks, std::size_t size) {
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) values.push_back(values_of(rank, size));
  return values;
}

std::vector<float> reference_sum(Algorithm algorithm, const std::vector<std::vector<float>>& terms, int subgroup) {
  const auto ranks = static_cast<int>(terms.size());
  const std::size_t size = terms[0].size();
  if (algorithm == Algorithm::ring) {
    std::vector<float> sum(size);
    for (int slice = 0; slice < ranks; ++slice) {
      const Slice range = slice_of(size, ranks, slice);
      for (std::size_t i = range.begin; i < range.begin + range.size; ++i) {
        for (int step = 1; step <= ranks; ++step) {
          const float term = terms[static_cast<std::size_t>((slice + step) % ranks)][i];
          sum[i] = step == 1 ? term : sum[i] + term;
        }
      }
    }
    return sum;
  }
  if (algorithm == Algorithm::hierarchical) {
    std::vector<std::vector<float>> sums;
    for (int first = 0; first < ranks; first += subgroup) {
      sums.push_back(sum_in_order({terms.begin() + first, terms.begin() + std::min(first + subgroup, ranks)}));
    }
    return sum_in_order(sums);
  }
  return sum_in_order(terms);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST_P(CollectiveSizeTest, AllReduceIsBitForBitTheSumInThePromisedOrder) {
  const std::vector<std::vector<float>> inputs = all_values(ranks(), floats());
  for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::flat, Algorithm::direct, Algorithm::ring, Algorithm::hierarchical}) {
    SCOPED_TRACE(to_string(algorithm));
    const std::vector<float> expected = reference_sum(algorithm, inputs, 3);
    run([&](Endpoint& endpoint) -> Status {
      for (int round = 0; round < 2; ++round) {
        std::vector<float> values = inputs[static_cast<std::size_t>(endpoint.rank())];
        STARLING_TRY(all_reduce(endpoint, Group::world(endpoint.size()), values, {.algorithm = algorithm, .subgroup = 3}));
        EXPECT_TRUE(same_bits(values, expected)) << "rank " << endpoint.rank() << ", round " << round;
      }
      return {};
    });
  }
}

TEST_P(CollectiveSizeTest, ReduceScatterAndAllGather) {
  const std::vector<std::vector<float>> inputs = all_values(ranks(), floats());
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
    SCOPED_TRACE(to_string(algorithm));
    const std::vector<float> expected = reference_sum(algorithm, inputs, 1);
    run([&](Endpoint& endpoint) -> Status {
      const Group world = Group::world(endpoint.size());
      const Slice own = slice_of(floats(), endpoint.size(), endpoint.rank());
      std::vector<float> values = inputs[static_cast<std::size_t>(endpoint.rank())];
      STARLING_TRY(reduce_scatter(endpoint, world, values, algorithm));
      EXPECT_TRUE(same_bits(std::span(values).subspan(own.begin, own.size), std::span(expected).subspan(own.begin, own.size)));
      // Only the own slice goes in: the rest is spoilt first.
      std::fill_n(values.begin(), own.begin, -1.0F);
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(own.begin + own.size), values.end(), -1.0F);
      STARLING_TRY(all_gather(endpoint, world, values, algorithm));
      EXPECT_TRUE(same_bits(values, expected));
      return {};
    });
  }
}

TEST_P(CollectiveSizeTest, BroadcastFromEveryRoot) {
  const std::vector<std::vector<float>> inputs = all_values(ranks(), floats());
  const std::vector<int> roots = floats() > 1000 ? std::vector<int>{0, ranks() - 1} : [&] {
    std::vector<int> all(static_cast<std::size_t>(ranks()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }();
  run([&](Endpoint& endpoint) -> Status {
    for (const int root : roots) {
      std::vector<float> values = inputs[static_cast<std::size_t>(endpoint.rank())];
      STARLING_TRY(broadcast(endpoint, Group::world(endpoint.size()), values, root));
      EXPECT_TRUE(same_bits(values, inputs[static_cast<std::size_t>(root)])) << "root " << root;
    }
    return {};
  });
}

TEST_P(CollectiveTest, NobodyLeavesABarrierBeforeTheLastHasCome) {
  run([&](Endpoint& endpoint) -> Status {
    auto arrived = endpoint.open_window("arrived", 1, 0);
    if (!arrived) return arrived.failure();
    for (int round = 1; round <= 5; ++round) {
      if (endpoint.rank() == round % endpoint.size()) endpoint.sleep(std::chrono::milliseconds(2));
      STARLING_TRY((*arrived)->add(0, std::vector<float>{1}));
      STARLING_TRY(barrier(endpoint, Group::world(endpoint.size())));
      std::vector<float> count(1);
      STARLING_TRY((*arrived)->read(0, count));
      EXPECT_GE(count[0], static_cast<float>(round * endpoint.size()));
    }
    return barrier(endpoint, Group::world(endpoint.size()));  // The window ends with its home.
  });
}

// Odd and even ranks in groups of their own, at the same time, in descending order: the order of the group counts, not of the ranks.
TEST_P(CollectiveTest, GroupsRunSideBySideInTheirOwnOrder) {
  run([&](Endpoint& endpoint) -> Status {
    std::vector<fabric::Rank> members;
    for (fabric::Rank rank = endpoint.size() - 1; rank >= 0; --rank) {
      if (rank % 2 == endpoint.rank() % 2) members.push_back(rank);
    }
    const Group group(members, 7);
    std::vector<std::vector<float>> terms;
    for (const fabric::Rank member : members) terms.push_back(values_of(member, 3000));
    const std::vector<float> expected = sum_in_order(terms);
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::flat, Algorithm::direct}) {
      std::vector<float> values = values_of(endpoint.rank(), 3000);
      STARLING_TRY(all_reduce(endpoint, group, values, {.algorithm = algorithm}));
      EXPECT_TRUE(same_bits(values, expected)) << to_string(algorithm);
    }
    return {};
  });
}

// A queue that holds one message: whoever sends ahead without reading would stop for ever.
TEST_P(CollectiveTest, TheSmallestQueuesAreEnough) {
  fabric::FabricOptions tight = options();
  tight.queue_messages = 1;
  tight.queue_bytes = 1;
  tight.timeout = std::chrono::seconds(10);
  for (const Algorithm algorithm : {Algorithm::flat, Algorithm::direct, Algorithm::ring, Algorithm::hierarchical}) {
    SCOPED_TRACE(to_string(algorithm));
    run(tight, [&](Endpoint& endpoint) -> Status {
      // Several segments in every slice, and in the whole vector.
      std::vector<float> values(300000 * static_cast<std::size_t>(std::min(endpoint.size(), 3)), 1);
      for (int round = 0; round < 2; ++round) {
        STARLING_TRY(all_reduce(endpoint, Group::world(endpoint.size()), values, {.algorithm = algorithm, .subgroup = 3}));
        STARLING_TRY(barrier(endpoint, Group::world(endpoint.size())));
      }
      EXPECT_EQ(values.back(), static_cast<float>(endpoint.size() * endpoint.size()));
      return {};
    });
  }
}

TEST_P(CollectiveTest, DifferentLengthsAreAMismatch) {
  if (ranks() == 1) return;
  for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::flat, Algorithm::direct, Algorithm::ring}) {
    SCOPED_TRACE(to_string(algorithm));
    fabric::FabricOptions hasty = options();
    hasty.timeout = std::chrono::seconds(2);
    const auto world = fabric::make_fabric(fabric_name(), hasty);
    const fabric::RunReport report = world->run([&](Endpoint& endpoint) -> Status {
      std::vector<float> values(endpoint.rank() == 0 ? 3000 : 6000, 1);
      return all_reduce(endpoint, Group::world(endpoint.size()), values, {.algorithm = algorithm});
    });
    EXPECT_FALSE(report.ok());
    EXPECT_NE(report.summary().find("vectors of different length"), std::string::npos) << report.summary();
  }
}

// The last comes when the others have given up, and perhaps add something else already. Whatever becomes of what was given up, nobody has a
// wrong sum, and a group with a new context goes on.
TEST_P(CollectiveTest, WhatWasGivenUpSpoilsNothing) {
  if (ranks() == 1) return;
  using std::chrono::milliseconds;
  run([&](Endpoint& endpoint) -> Status {
    std::vector<fabric::Rank> all(static_cast<std::size_t>(endpoint.size()));
    std::iota(all.begin(), all.end(), 0);
    std::uint16_t context = 100;
    for (const std::size_t size : {4U, 3000U, 4U, 3000U}) {
      std::vector<float> given(size, 1);
      if (endpoint.rank() == endpoint.size() - 1) endpoint.sleep(milliseconds(15));
      const Status status = all_reduce(endpoint, Group(all, context++), given, {.deadline = fabric::Deadline::after(milliseconds(10))});
      if (status) {
        EXPECT_EQ(given, std::vector<float>(size, static_cast<float>(endpoint.size())));
      }
      std::vector<float> values(size, 2);
      STARLING_TRY(all_reduce(endpoint, Group(all, context++), values));
      EXPECT_EQ(values, std::vector<float>(size, static_cast<float>(2 * endpoint.size())));
    }
    return {};
  });
}

TEST_P(CollectiveTest, ManyRoundsOfEverySizeAroundTheShortPath) {
  run([&](Endpoint& endpoint) -> Status {
    const Group world = Group::world(endpoint.size());
    for (const std::size_t size : {1U, 2U, 15U, 16U, 17U, 63U, 64U, 65U, 1000U, 1U, 4000U}) {
      std::vector<float> values(size);
      for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i % 100) * static_cast<float>(endpoint.rank() + 1);
      STARLING_TRY(all_reduce(endpoint, world, values));
      const auto factor = static_cast<float>(endpoint.size() * (endpoint.size() + 1) / 2);
      for (std::size_t i = 0; i < size; ++i) {
        if (values[i] != static_cast<float>(i % 100) * factor) {
          ADD_FAILURE() << "element " << i << " of " << size;
          return {};
        }
      }
    }
    return {};
  });
}

TEST(Slice, DealsEvenlyAndCompletely) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    for (const int parts : {1, 2, 3, 8}) {
      std::size_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Slice slice = slice_of(size, parts, i);
        EXPECT_EQ(slice.begin, next);
        EXPECT_GE(slice.size, size / static_cast<std::size_t>(parts));
        EXPECT_LE(slice.size, size / static_cast<std::size_t>(parts) + 1);
        next += slice.size;
      }
      EXPECT_EQ(next, size);
    }
  }
}

TEST(Algorithm, IsReadByNameWithAHint) {
  for (const char* name : {"automatic", "flat", "direct", "ring", "hierarchical"}) EXPECT_STREQ(to_string(parse_algorithm(name)), name);
  try {
    parse_algorithm("rnig");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'ring'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace starling::collective
