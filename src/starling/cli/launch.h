// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How this process was started: alone, or by mpirun or srun as one of several.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "starling/fabric/mpi/mpi_job.h"
#include "starling/run/run_config.h"

namespace starling::cli {

// What the launcher says in the environment, before any MPI library is loaded: 0 and 1 for a process that was started alone.
int process_rank();
int process_count();

// The MPI job this process is part of: joined where a launcher started it and `fabric` is not given, or is mpi; else nothing. Throws
// UserError if several processes were started for a fabric that lives in one, or without a way for MPI to join them.
std::unique_ptr<fabric::MpiJob> join_job(const std::optional<std::string>& fabric);

// Lays roles over the ranks of the job: workers first, then servers, then the generator. Where the number of workers is not given, it is
// what servers and generator leave. Throws UserError if that does not come out.
void fit_to_job(const fabric::MpiJob& job, bool workers_given, run::RunConfig& config);

// "ranks 0-2 workers, 3 server; hosts a (0-1), b (2-3); Open MPI v4.1.4".
std::string job_text(const fabric::MpiJob& job, const run::RunConfig& config);

}  // namespace starling::cli
