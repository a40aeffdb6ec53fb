// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_plugin.h"

#include "starling/base/error.h"
#include "starling/base/plugin.h"
#include "starling/compute/torch/torch_plugin_entry.h"

namespace starling::compute {
namespace {

TorchPluginEntry* find_entry() {
  const Plugin plugin = open_plugin(
      {.file = kTorchPluginFile,
       .name = "torch",
       .missing = "models of LibTorch need the torch component, and this Starling was built without it: install LibTorch (apt-get install "
                  "libtorch-dev), and build with the CMake option STARLING_TORCH=ON"});
  auto* entry = plugin.find<TorchPluginEntry>("starling_torch_plugin_make");
  if (entry == nullptr) throw UserError("the torch component of Starling has no way in: build and install both together");
  return entry;
}

}  // namespace

std::unique_ptr<Replica> load_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  static TorchPluginEntry* const kEntry = find_entry();  // Tried again at the next call if it throws.
  return std::unique_ptr<Replica>(kEntry(model, problem, seed, rank));
}

}  // namespace starling::compute
