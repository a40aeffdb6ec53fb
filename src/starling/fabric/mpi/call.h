// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Calls of MPI, whose errors are return codes here (MPI_ERRORS_RETURN), as exceptions: none of them is an expected outcome.
//
//   call("MPI_Iprobe", MPI_Iprobe(...));
#pragma once

namespace starling::fabric::mpi {

// Throws std::runtime_error with MPI's own words if the code is not MPI_SUCCESS.
void call(const char* name, int code);

}  // namespace starling::fabric::mpi
