// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "starling/base/error.h"
#include "starling/base/plugin.h"
#include "starling/fabric/mpi/mpi_job.h"
#include "starling/fabric/mpi/mpi_plugin_entry.h"
#include "starling/fabric/mpi/speaking.h"

namespace starling::fabric {
namespace {

Plugin open_mpi_plugin() {
  return open_plugin({.file = kMpiPluginFile,
                      .name = "mpi",
                      .missing = "the fabric 'mpi' needs the mpi component, and this Starling was built without it: install an MPI library "
                                 "(apt-get install libopenmpi-dev openmpi-bin), and build with the CMake option STARLING_MPI=ON",
                      .global = true});
}

}  // namespace

std::unique_ptr<MpiJob> join_mpi_job(const MpiJobOptions& options) {
  const Plugin plugin = [&] {
    try {
      return open_mpi_plugin();
    } catch (const UserError&) {
      // Where no process can, the first speaks for all.
      if (options.speaks_after > 0) std::this_thread::sleep_for(mpi::kTimeToEnd);
      throw;
    }
  }();
  auto* entry = plugin.find<MpiPluginEntry>("starling_mpi_plugin_join");
  if (entry == nullptr) throw UserError("the mpi component of Starling has no way in: build and install both together");
  return std::unique_ptr<MpiJob>(entry(options));
}

}  // namespace starling::fabric
