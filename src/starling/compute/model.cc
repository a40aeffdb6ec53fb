// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/model.h"

#include <string_view>

#include "starling/compute/native/native_replica.h"
#include "starling/compute/network.h"
#include "starling/compute/torch/torch_plugin.h"

namespace starling::compute {

std::unique_ptr<Replica> make_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  constexpr std::string_view kTorch = "torch:";
  if (model.starts_with(kTorch)) return load_torch_replica(model.substr(kTorch.size()), problem, seed, rank);
  return native::make_native_replica(parse_network(model, problem), seed, rank);
}

}  // namespace starling::compute
