// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the plugin exports and its loader looks up: "starling_mpi_plugin_version", the version it was built as, and
// "starling_mpi_plugin_join", make_mpi_job() in the form that a C symbol can have.
#pragma once

#include "starling/fabric/mpi/mpi_job.h"

namespace starling::fabric {

inline constexpr const char* kMpiPluginFile = "starling_mpi.so";

using MpiPluginVersion = const char*();

// The caller owns the result. Throws what make_mpi_job() throws.
using MpiPluginEntry = MpiJob*(const MpiJobOptions&);

}  // namespace starling::fabric
