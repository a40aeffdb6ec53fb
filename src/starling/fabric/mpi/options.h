// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// What the MPI fabric alone needs to know.
#pragma once

namespace starling::fabric {

struct MpiOptions {
  // All-reduces over all ranks by MPI_Allreduce: then the order of additions, and so the last bits of sums, are MPI's choice.
  bool library_all_reduce = false;

  // Windows by MPI's one-sided operations also where all ranks are on one host, where they would be plain shared memory.
  bool one_sided_windows = false;
};

}  // namespace starling::fabric
