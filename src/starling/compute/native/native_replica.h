// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The replica that needs no framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "starling/compute/network.h"
#include "starling/compute/replica.h"

namespace starling::compute::native {

struct NativeOptions {
  // A dense layer of more weights than this goes to OpenBLAS, if there is one. Below, the direct kernels are faster, the more so the
  // smaller the batch.
  std::size_t direct_dense_weights = 2'000'000;
};

// Starts at initialise(network, seed). The rank separates what replicas of one run drop out.
std::unique_ptr<Replica> make_native_replica(const Network& network, std::uint64_t seed, std::uint32_t rank,
                                             const NativeOptions& options = {});

}  // namespace starling::compute::native
