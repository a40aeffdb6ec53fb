// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/strategy/topology.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::strategy {
namespace {

std::vector<int> list(const Topology& topology, int worker) {
  const std::span<const int> neighbours = topology.neighbours(worker);
  return {neighbours.begin(), neighbours.end()};
}

// Written without what topology.cc uses: distances by relaxation until nothing changes.
bool all_reached(const Topology& topology) {
  std::vector<bool> reached(static_cast<std::size_t>(topology.workers()));
  reached[0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (int worker = 0; worker < topology.workers(); ++worker) {
      if (!reached[static_cast<std::size_t>(worker)]) continue;
      for (const int neighbour : topology.neighbours(worker)) {
        if (reached[static_cast<std::size_t>(neighbour)]) continue;
        reached[static_cast<std::size_t>(neighbour)] = true;
        changed = true;
      }
    }
  }
  return std::all_of(reached.begin(), reached.end(), [](bool one) { return one; });
}

void expect_sound(const Topology& topology) {
  for (int worker = 0; worker < topology.workers(); ++worker) {
    const std::vector<int> neighbours = list(topology, worker);
    EXPECT_EQ(std::adjacent_find(neighbours.begin(), neighbours.end(), std::greater_equal<>()), neighbours.end()) << "of " << worker;
    for (const int neighbour : neighbours) {
      ASSERT_TRUE(neighbour >= 0 && neighbour < topology.workers());
      EXPECT_NE(neighbour, worker);
      const std::vector<int> back = list(topology, neighbour);
      EXPECT_NE(std::find(back.begin(), back.end(), worker), back.end()) << worker << " to " << neighbour << " and not back";
    }
  }
  EXPECT_TRUE(all_reached(topology));
}

void expect_degree(const Topology& topology, std::size_t degree) {
  for (int worker = 0; worker < topology.workers(); ++worker) EXPECT_EQ(topology.neighbours(worker).size(), degree) << worker;
}

std::string refusal(const TopologyOptions& options, int workers) {
  try {
    (void)Topology::make(options, workers);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

const char* const kKinds[] = {"ring", "torus", "hypercube", "random", "complete"};

TEST(Topology, OneWorkerHasNobodyAndTwoHaveEachOther) {
  for (const char* kind : kKinds) {
    SCOPED_TRACE(kind);
    EXPECT_EQ(list(Topology::make({.kind = kind}, 1), 0), std::vector<int>());
    const Topology two = Topology::make({.kind = kind}, 2);
    EXPECT_EQ(list(two, 0), std::vector<int>{1});
    EXPECT_EQ(list(two, 1), std::vector<int>{0});
  }
}

TEST(Topology, ByHand) {
  const Topology ring = Topology::make({.kind = "ring"}, 5);
  EXPECT_EQ(list(ring, 0), (std::vector<int>{1, 4}));
  EXPECT_EQ(list(ring, 3), (std::vector<int>{2, 4}));
  const Topology grid = Topology::make({.kind = "torus"}, 12);  // 0 1 2 3 / 4 5 6 7 / 8 9 10 11.
  EXPECT_EQ(list(grid, 0), (std::vector<int>{1, 3, 4, 8}));
  EXPECT_EQ(list(grid, 6), (std::vector<int>{2, 5, 7, 10}));
  EXPECT_EQ(list(Topology::make({.kind = "torus"}, 6), 0), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(list(Topology::make({.kind = "torus", .rows = 2}, 12), 0), (std::vector<int>{1, 5, 6}));
  EXPECT_EQ(list(Topology::make({.kind = "hypercube"}, 8), 5), (std::vector<int>{1, 4, 7}));
  EXPECT_EQ(list(Topology::make({.kind = "complete"}, 4), 2), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(Topology::make({.kind = "random", .degree = 3}, 4), Topology::make({.kind = "complete"}, 4));
}

TEST(Topology, WhatDoesNotFitNamesWhatDoes) {
  EXPECT_NE(refusal({.kind = "torus"}, 7).find("7 workers do not fill a torus"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus"}, 7).find("the nearest that do are 6 (2 x 3), 8 (2 x 4), 9 (3 x 3)"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus"}, 3).find("4 (2 x 2), 6 (2 x 3), 8 (2 x 4)"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus", .rows = 3}, 8).find("a torus of 3 rows, which has at least 2 rows and 2 columns"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus", .rows = 3}, 8).find("6 (3 x 2), 9 (3 x 3), 12 (3 x 4)"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus", .rows = 6}, 6).find("12 (6 x 2)"), std::string::npos);
  EXPECT_NE(refusal({.kind = "torus", .rows = 1}, 6).find("a single row is topology ring"), std::string::npos);
  EXPECT_NE(refusal({.kind = "hypercube"}, 12).find("the nearest are 8 and 16"), std::string::npos);
  EXPECT_NE(refusal({.kind = "random", .degree = 3}, 7).find("7 workers cannot have 3 neighbours each"), std::string::npos);
  EXPECT_NE(refusal({.kind = "random", .degree = 3}, 7).find("that fit 7 workers: 2, 4, 6"), std::string::npos);
  EXPECT_NE(refusal({.kind = "random", .degree = 9}, 4).find("that fit 4 workers: 2, 3"), std::string::npos);
  EXPECT_NE(refusal({.kind = "random", .degree = 1}, 6).find("that fit 6 workers: 2, 3, 4"), std::string::npos);
}

// Of every kind and number of workers: either refused, with sizes that are not, or a sound graph with the degree that its kind says.
TEST(Topology, EverySizeIsSoundOrRefused) {
  for (int workers = 3; workers <= 70; ++workers) {
    SCOPED_TRACE(workers);
    const auto degree_of_all = static_cast<std::size_t>(workers - 1);
    const Topology ring = Topology::make({.kind = "ring"}, workers);
    expect_sound(ring);
    expect_degree(ring, 2);
    const Topology complete = Topology::make({.kind = "complete"}, workers);
    expect_sound(complete);
    expect_degree(complete, degree_of_all);
    const bool power = (workers & (workers - 1)) == 0;
    EXPECT_EQ(refusal({.kind = "hypercube"}, workers) == "accepted", power);
    if (power) {
      const Topology cube = Topology::make({.kind = "hypercube"}, workers);
      expect_sound(cube);
      for (int worker = 0; worker < workers; ++worker) EXPECT_EQ(1 << cube.neighbours(worker).size(), workers);
    }
    bool prime = true;
    for (int divisor = 2; divisor < workers; ++divisor) prime = prime && workers % divisor != 0;
    EXPECT_EQ(refusal({.kind = "torus"}, workers) == "accepted", !prime);
    if (!prime) expect_sound(Topology::make({.kind = "torus"}, workers));
    for (int rows = 2; rows <= workers / 2; ++rows) {
      EXPECT_EQ(refusal({.kind = "torus", .rows = rows}, workers) == "accepted", workers % rows == 0);
      if (workers % rows == 0 && rows > 2 && workers / rows > 2) expect_degree(Topology::make({.kind = "torus", .rows = rows}, workers), 4);
    }
  }
}

TEST(Topology, RandomOnesAreRegularConnectedAndAFunctionOfTheSeed) {
  constexpr std::uint64_t kFirstSeed = 11;
  for (std::uint64_t seed = kFirstSeed; seed < kFirstSeed + 300; ++seed) {
    RandomStream random(seed, 0, "topology test");
    const int workers = 3 + static_cast<int>(random.below(60));
    const int degree = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(workers) + 2));
    SCOPED_TRACE(fmt::format("seed {}: {} workers of {} neighbours", seed, workers, degree));
    const bool fits = degree >= 2 && degree < workers && degree * workers % 2 == 0;
    const TopologyOptions options{.kind = "random", .degree = degree, .seed = seed};
    EXPECT_EQ(refusal(options, workers) == "accepted", fits);
    if (!fits) continue;
    const Topology topology = Topology::make(options, workers);
    expect_sound(topology);
    expect_degree(topology, static_cast<std::size_t>(degree));
    EXPECT_EQ(topology, Topology::make(options, workers));
  }
}

// Over many seeds every pair of workers is joined about as often as any other: degree / (workers - 1) of the time.
TEST(Topology, RandomOnesJoinAllPairsAlike) {
  constexpr int kWorkers = 8;
  constexpr int kSeeds = 2000;
  for (const int degree : {2, 3, 4}) {
    std::vector<int> counts(static_cast<std::size_t>(kWorkers * kWorkers));
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Topology topology = Topology::make({.kind = "random", .degree = degree, .seed = seed}, kWorkers);
      for (int worker = 0; worker < kWorkers; ++worker) {
        for (const int neighbour : topology.neighbours(worker)) ++counts[static_cast<std::size_t>(worker * kWorkers + neighbour)];
      }
    }
    const double expected = static_cast<double>(kSeeds * degree) / (kWorkers - 1);
    for (int pair = 0; pair < kWorkers * kWorkers; ++pair) {
      if (pair % (kWorkers + 1) == 0) continue;  // A worker and itself.
      EXPECT_NEAR(counts[static_cast<std::size_t>(pair)], expected, 0.2 * expected) << degree << ", " << pair;
    }
  }
}

// Most ways to switch links of a large ring leave it in pieces.
TEST(Topology, RandomOnesOfTwoNeighboursAreRingsInAnyOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Topology topology = Topology::make({.kind = "random", .degree = 2, .seed = seed}, 200);
    int in_order = 0;
    for (int worker = 1; worker < 200; ++worker) in_order += std::ranges::count(topology.neighbours(worker), worker - 1) > 0 ? 1 : 0;
    EXPECT_LT(in_order, 20) << "seed " << seed;
  }
}

// Not every graph of three neighbours is the circulant one in another order: triangles do occur.
TEST(Topology, RandomOnesAreOfDifferentShapes) {
  std::set<int> triangles;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Topology topology = Topology::make({.kind = "random", .degree = 3, .seed = seed}, 10);
    int found = 0;
    for (int a = 0; a < 10; ++a) {
      for (const int b : topology.neighbours(a)) {
        for (const int c : topology.neighbours(b)) found += std::ranges::count(topology.neighbours(c), a) > 0 ? 1 : 0;
      }
    }
    triangles.insert(found);
  }
  EXPECT_GT(triangles.size(), 3U);
}

TEST(Topology, OptionsOfAStrategySayIt) {
  Settings settings("any", topology_options("complete"));
  EXPECT_EQ(topology_of(settings, 7).kind, "complete");
  settings.set("topology", "random");
  settings.set("degree", "6");
  const TopologyOptions options = topology_of(settings, 7);
  EXPECT_EQ(Topology::make(options, 9), Topology::make({.kind = "random", .degree = 6, .seed = 7}, 9));
  EXPECT_THROW(settings.set("topology", "star"), UserError);
  settings.set("topology", "torus");
  settings.set("rows", "2");
  EXPECT_EQ(topology_of(settings, 7).rows, 2);
}

}  // namespace
}  // namespace starling::strategy
