// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The delays one rank meets at named points (Endpoint::pass), for implementers of fabrics.
#pragma once

#include <string_view>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

class PointDelays {
 public:
  PointDelays(const FabricOptions& options, Rank rank);

  // How long to wait at this point, this time. Zero where no rule names it.
  Duration draw(std::string_view point);

 private:
  struct Delay {
    std::string point;
    Distribution time;
    RandomStream stream;
  };
  std::vector<Delay> delays_;
};

}  // namespace starling::fabric
