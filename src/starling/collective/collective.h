// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Operations in which all members of a group take part. They are written on the endpoint alone and so run on every fabric.
//
//   STARLING_TRY(collective::all_reduce(endpoint, Group::world(endpoint.size()), gradient));
//
// All members call the same operation with the same arguments, in the same order. The result does not depend on who arrives when: sums
// are formed in an order that the group and the algorithm alone decide. A group of one and an empty vector are no-ops.
//
// What each algorithm sends is in docs/collectives.md. When an operation fails, the contents of the vector are undefined, and the group
// must not be used again: form a new one, with another context.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "starling/base/result.h"
#include "starling/fabric/endpoint.h"

namespace starling::collective {

enum class Algorithm {
  automatic,     // The fabric's native way, or flat or direct by size. Always adds in the order of the group.
  flat,          // All send to the first member, which adds in the order of the group and sends back. Fewest messages.
  direct,        // Each member adds one slice, in the order of the group, and sends it to all. Same result as flat, bit for bit.
  ring,          // Slices travel around a ring. Slice s is added in the order s+1, s+2, …, s: another rounding than flat.
  hierarchical,  // Flat inside subgroups, direct between their first members, and back. Adds subgroup by subgroup.
};

// Throws UserError naming the valid ones.
Algorithm parse_algorithm(std::string_view name);
const char* to_string(Algorithm algorithm);

struct AllReduceOptions {
  Algorithm algorithm = Algorithm::automatic;
  int subgroup = 8;  // Members in a subgroup, for hierarchical.
  fabric::Deadline deadline = fabric::Deadline::standard();
};

// Part `index` of `size` elements dealt to `parts` members as evenly as possible, the longer parts first.
struct Slice {
  std::size_t begin = 0;
  std::size_t size = 0;
};
Slice slice_of(std::size_t size, int parts, int index);

// Every member's `values` becomes the sum over all members.
Status all_reduce(fabric::Endpoint& endpoint, const fabric::Group& group, std::span<float> values, const AllReduceOptions& options = {});

// The slice of `values` at the caller's position becomes the sum over all members; the rest is undefined afterwards. `algorithm` is direct
// or ring (automatic: direct).
Status reduce_scatter(fabric::Endpoint& endpoint, const fabric::Group& group, std::span<float> values,
                      Algorithm algorithm = Algorithm::automatic, fabric::Deadline deadline = fabric::Deadline::standard());

// Every member gives the slice of `values` at its position, and gets all the others. `algorithm` is direct or ring (automatic: direct).
Status all_gather(fabric::Endpoint& endpoint, const fabric::Group& group, std::span<float> values,
                  Algorithm algorithm = Algorithm::automatic, fabric::Deadline deadline = fabric::Deadline::standard());

// Every member's `values` becomes that of the member at position `root`. A binomial tree.
Status broadcast(fabric::Endpoint& endpoint, const fabric::Group& group, std::span<float> values, int root = 0,
                 fabric::Deadline deadline = fabric::Deadline::standard());

// Returns when every member has called it. Dissemination: in round k, position i tells position i + 2^k.
Status barrier(fabric::Endpoint& endpoint, const fabric::Group& group, fabric::Deadline deadline = fabric::Deadline::standard());

}  // namespace starling::collective
