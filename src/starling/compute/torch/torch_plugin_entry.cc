// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_plugin_entry.h"

#include "starling/compute/torch/torch_replica.h"
#include "starling/version.h"

extern "C" {

extern starling::compute::TorchPluginVersion starling_torch_plugin_version;
const char* starling_torch_plugin_version() { return starling::kVersion; }

extern starling::compute::TorchPluginEntry starling_torch_plugin_make;
starling::compute::Replica* starling_torch_plugin_make(const std::string& model, const starling::compute::Problem& problem,
                                                       std::uint64_t seed, std::uint32_t rank) {
  return starling::compute::make_torch_replica(model, problem, seed, rank).release();
}

}  // extern "C"
