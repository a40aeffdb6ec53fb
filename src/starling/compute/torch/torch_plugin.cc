// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/torch/torch_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "starling/base/error.h"
#include "starling/compute/torch/torch_plugin_entry.h"
#include "starling/version.h"

namespace starling::compute {
namespace {

namespace fs = std::filesystem;

// The folders of the program and of the library this code is in; the same unless the library is a shared one.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_torch_replica), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(fs::path(info.dli_fname).parent_path());
  }
  return folders;
}

// In a build folder the plugin is in lib/starling of the folder that has the program; installed, beside the library or in ../lib.
fs::path find_plugin() {
  for (const fs::path& folder : own_folders()) {
    for (const char* place : {"starling", "lib/starling", "../lib/starling", "../" STARLING_LIBDIR "/starling"}) {
      fs::path path = folder / place / kTorchPluginFile;
      std::error_code ignored;
      if (fs::exists(path, ignored)) return path;
    }
  }
  throw UserError(
      "models of LibTorch need the torch component, and this Starling was built without it: install LibTorch (apt-get install "
      "libtorch-dev), "
      "and build with the CMake option STARLING_TORCH=ON");
}

// Opens the plugin; it is never closed, because replicas it made may live as long as the process.
TorchPluginEntry* open_plugin() {
  const fs::path path = find_plugin();
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) throw UserError(fmt::format("the torch component cannot be loaded: {}", dlerror()));
  auto* version = reinterpret_cast<TorchPluginVersion*>(dlsym(plugin, "starling_torch_plugin_version"));
  auto* entry = reinterpret_cast<TorchPluginEntry*>(dlsym(plugin, "starling_torch_plugin_make"));
  if (version == nullptr || entry == nullptr) throw UserError(fmt::format("'{}' is no torch component of Starling", path.string()));
  if (std::string_view(version()) != kVersion) {
    throw UserError(fmt::format("the torch component '{}' is of Starling {}, but this is {}: build and install both together",
                                path.string(), version(), kVersion));
  }
  return entry;
}

}  // namespace

std::unique_ptr<Replica> load_torch_replica(const std::string& model, const Problem& problem, std::uint64_t seed, std::uint32_t rank) {
  static TorchPluginEntry* const kEntry = open_plugin();  // Tried again at the next call if it throws.
  return std::unique_ptr<Replica>(kEntry(model, problem, seed, rank));
}

}  // namespace starling::compute
