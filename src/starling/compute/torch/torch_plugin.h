// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// LibTorch's replicas for a program that does not link LibTorch: loading it takes longer than a whole native run may take to start. The
// component is a plugin, lib/starling/starling_torch.so, opened when the first such model is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "starling/compute/model.h"
#include "starling/compute/replica.h"

namespace starling::compute {

// make_torch_replica of torch_replica.h, from the plugin; `model` is what comes after "torch:". Also throws UserError, with how to get it,
// if there is no plugin near the program or the library, or it cannot be loaded. Thread-safe.
std::unique_ptr<Replica> load_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank);

}  // namespace starling::compute
