// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "starling/base/error.h"
#include "starling/version.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// The folders of the program and of the library this code is in; the same unless the library is a shared one.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_plugin), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(fs::path(info.dli_fname).parent_path());
  }
  return folders;
}

// In a build folder the plugin is in lib/starling of the folder that has the program; installed, beside the library or in ../lib.
fs::path find_file(const PluginOptions& options) {
  for (const fs::path& folder : own_folders()) {
    for (const char* place : {"starling", "lib/starling", "../lib/starling", "../" STARLING_LIBDIR "/starling"}) {
      fs::path path = folder / place / options.file;
      std::error_code ignored;
      if (fs::exists(path, ignored)) return path;
    }
  }
  throw UserError(options.missing);
}

}  // namespace

void* Plugin::address(const char* name) const { return dlsym(handle_, name); }

Plugin open_plugin(const PluginOptions& options) {
  const fs::path path = find_file(options);
  void* handle = dlopen(path.c_str(), RTLD_NOW | (options.global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) throw UserError(fmt::format("the {} component cannot be loaded: {}", options.name, dlerror()));
  const Plugin plugin(handle);
  auto* version = plugin.find<const char*()>((path.stem().string() + "_plugin_version").c_str());
  if (version == nullptr) throw UserError(fmt::format("'{}' is no {} component of Starling", path.string(), options.name));
  if (std::string_view(version()) != kVersion) {
    throw UserError(fmt::format("the {} component '{}' is of Starling {}, but this is {}: build and install both together", options.name,
                                path.string(), version(), kVersion));
  }
  return plugin;
}

}  // namespace starling
