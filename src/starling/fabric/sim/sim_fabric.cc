// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/sim/sim_fabric.h"

#include <utility>

#include "starling/fabric/sim/world.h"

namespace starling::fabric {

SimFabric::SimFabric(SimOptions options) : options_(std::move(options)) { options_.validate(); }

RunReport SimFabric::run(const Body& body) {
  sim::World world(options_, body);
  RunReport report = world.run();
  end_time_ = world.now();
  message_faults_ = world.message_faults();
  return report;
}

}  // namespace starling::fabric
