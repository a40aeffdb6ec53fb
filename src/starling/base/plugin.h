// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Optional components as plugins: shared libraries in lib/starling, opened when they are first asked for, so that a program that does not
// need them loads nothing of them.
//
//   const Plugin plugin = open_plugin({.file = "starling_mpi.so", .name = "mpi", .missing = "..."});
//   auto* entry = plugin.find<MpiPluginEntry>("starling_mpi_plugin_join");
#pragma once

#include <string>

namespace starling {

struct PluginOptions {
  std::string file{};     // "starling_torch.so"; it exports "FILE_plugin_version" without ".so", the version of Starling it was built as.
  std::string name{};     // Of the component, for messages: "torch".
  std::string missing{};  // The whole sentence for a user who does not have it: what needs it, and how to get it.
  bool global = false;    // Its libraries' symbols are seen by libraries that these open themselves.
};

// An open plugin. It is never closed, because what it made may live as long as the process.
class Plugin {
 public:
  explicit Plugin(void* handle) : handle_(handle) {}

  // Nothing under this name gives nullptr.
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;
  void* handle_;
};

// Looks near the program and near the library this code is in. Throws UserError if there is no such plugin, it cannot be loaded, or it is
// of another version.
Plugin open_plugin(const PluginOptions& options);

}  // namespace starling
