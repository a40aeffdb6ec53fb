// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/point_delays.h"

namespace starling::fabric {

PointDelays::PointDelays(const FabricOptions& options, Rank rank) {
  for (std::size_t i = 0; i < options.delays.size(); ++i) {
    const DelayRule& rule = options.delays[i];
    if (!rule.ranks.contains(rank)) continue;
    delays_.push_back({rule.point, rule.time, RandomStream(options.seed, static_cast<std::uint32_t>(rank), "delay " + std::to_string(i))});
  }
  realign(options.start_number);
}

void PointDelays::realign(std::uint64_t number) {
  for (Delay& delay : delays_) delay.stream.seek(realigned_position(number));
}

Duration PointDelays::draw(std::string_view point) {
  Duration total = Duration::zero();
  for (Delay& delay : delays_) {
    if (delay.point == point) total = later(total, from_seconds(delay.time.sample(delay.stream)));
  }
  return total;
}

}  // namespace starling::fabric
