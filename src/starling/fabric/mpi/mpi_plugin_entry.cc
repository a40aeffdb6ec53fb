// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/mpi_plugin_entry.h"

#include "starling/fabric/mpi/mpi_fabric.h"
#include "starling/version.h"

extern "C" {

extern starling::fabric::MpiPluginVersion starling_mpi_plugin_version;
const char* starling_mpi_plugin_version() { return starling::kVersion; }

extern starling::fabric::MpiPluginEntry starling_mpi_plugin_join;
starling::fabric::MpiJob* starling_mpi_plugin_join(const starling::fabric::MpiJobOptions& options) {
  return starling::fabric::make_mpi_job(options).release();
}

}  // extern "C"
