// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/point_delays.h"

namespace starling::fabric {

PointDelays::PointDelays(const FabricOptions& options, Rank rank) {
  for (const DelayRule& rule : options.delays) {
    if (!rule.ranks.contains(rank)) continue;
    delays_.push_back({rule.point, rule.time, RandomStream(options.seed, static_cast<std::uint32_t>(rank), "delay at " + rule.point)});
  }
}

Duration PointDelays::draw(std::string_view point) {
  Duration total = Duration::zero();
  for (Delay& delay : delays_) {
    if (delay.point == point) total += from_seconds(delay.time.sample(delay.stream));
  }
  return total;
}

}  // namespace starling::fabric
