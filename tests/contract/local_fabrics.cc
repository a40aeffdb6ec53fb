// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite on fabrics whose ranks live in one process.
#include "contract/fabrics.h"

namespace starling::fabric {

std::vector<std::string> fabric_names() { return {"threads", "sim"}; }
bool has_one_process() { return true; }
std::vector<int> rank_counts() { return {1, 2, 3, 5, 8, 16}; }

std::unique_ptr<Fabric> make_fabric(const std::string& name, const FabricOptions& options) {
  if (name == "threads") return std::make_unique<ThreadsFabric>(options);
  SimOptions sim;
  static_cast<FabricOptions&>(sim) = options;
  sim.network.link.bytes_per_second = 1e9;
  return std::make_unique<SimFabric>(sim);
}

}  // namespace starling::fabric
