// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The delays one rank meets at named points (Endpoint::pass), for implementers of fabrics.
#pragma once

#include <string_view>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

// Where a random stream goes on after the realignment of this number. Between two of them 2^32 words can be drawn.
constexpr std::uint64_t realigned_position(std::uint64_t number) { return number << 32U; }

class PointDelays {
 public:
  PointDelays(const FabricOptions& options, Rank rank);

  // How long to wait at this point, this time. Zero where no rule names it.
  Duration draw(std::string_view point);

  // Goes on at the place in the random streams that belongs to a realignment (see Endpoint::realign).
  void realign(std::uint64_t number);

 private:
  struct Delay {
    std::string point;
    Distribution time;
    RandomStream stream;
  };
  std::vector<Delay> delays_;
};

}  // namespace starling::fabric
