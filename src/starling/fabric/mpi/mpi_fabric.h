// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// For programs that link starling::mpi: the job itself, without the plugin (see mpi_job.h).
#pragma once

#include <memory>

#include "starling/fabric/mpi/mpi_job.h"

namespace starling::fabric {

// As join_mpi_job(), for a program that has MPI in itself. Once per process. Throws UserError if MPI cannot do what is needed.
std::unique_ptr<MpiJob> make_mpi_job(const MpiJobOptions& options = {});

}  // namespace starling::fabric
