// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Who is next to whom, for strategies that talk to some workers only. A topology is a graph of the workers: symmetric, without loops from a
// worker to itself, connected. Every worker makes it by itself, from the options and the seed of the run alone, and all get the same.
//
//   const Topology topology = Topology::make({.kind = "torus"}, 6);          // 2 x 3. Throws UserError for 7, with the sizes that fit.
//   for (const int neighbour : topology.neighbours(rank)) ...                // Ascending.
//
// Kinds, with P workers:
//   ring       a worker and those before and after it
//   torus      rows x columns, both at least 2, with the edges joined; as square as P allows, unless rows is given
//   hypercube  workers whose numbers differ in one bit; P is a power of two
//   random     every worker has `degree` neighbours, drawn from the seed; 2 <= degree < P, and degree x P is even
//   complete   everybody
// One worker has no neighbour and two have each other, whatever the kind.
//
// A value type. Thread-safety: none is needed, as nothing changes after make().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/strategy/settings.h"

namespace starling::strategy {

struct TopologyOptions {
  std::string kind = "ring";
  int rows = 0;            // Of a torus; 0: as square as possible.
  int degree = 4;          // Of a random one.
  std::uint64_t seed = 1;  // Of a random one.
};

class Topology {
 public:
  // Throws UserError where the options do not fit the number of workers, naming the nearest that do.
  static Topology make(const TopologyOptions& options, int workers);

  int workers() const { return static_cast<int>(neighbours_.size()); }
  std::span<const int> neighbours(int worker) const { return neighbours_[static_cast<std::size_t>(worker)]; }

  bool operator==(const Topology&) const = default;

 private:
  explicit Topology(std::vector<std::vector<int>> neighbours) : neighbours_(std::move(neighbours)) {}

  std::vector<std::vector<int>> neighbours_;
};

// The options `topology`, `rows` and `degree` of a strategy, and what they say. Making the topology checks them.
std::vector<Option> topology_options(const std::string& standard);
TopologyOptions topology_of(const Settings& settings, std::uint64_t seed);

}  // namespace starling::strategy
