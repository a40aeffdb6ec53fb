// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The replica that needs no framework.
#pragma once

#include <cstdint>
#include <memory>

#include "starling/compute/network.h"
#include "starling/compute/replica.h"

namespace starling::compute::native {

// Starts at initialise(network, seed). The rank separates what replicas of one run drop out.
std::unique_ptr<Replica> make_native_replica(const Network& network, std::uint64_t seed, std::uint32_t rank);

}  // namespace starling::compute::native
