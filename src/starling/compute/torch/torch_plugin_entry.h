// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the plugin exports and its loader looks up: "starling_torch_plugin_version", the version it was built as, and
// "starling_torch_plugin_make", make_torch_replica in the form that a C symbol can have. Both sides are built from the same source by the
// same compiler; the version guards that.
#pragma once

#include <cstdint>
#include <string>

#include "starling/compute/model.h"
#include "starling/compute/replica.h"

namespace starling::compute {

inline constexpr const char* kTorchPluginFile = "starling_torch.so";

using TorchPluginVersion = const char*();

// The caller owns the result. Throws what make_torch_replica throws.
using TorchPluginEntry = Replica*(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

}  // namespace starling::compute
