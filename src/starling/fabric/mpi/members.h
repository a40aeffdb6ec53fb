// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Who is who in an MPI job, and which processes share a host.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "starling/fabric/message.h"

namespace starling::fabric::mpi {

struct Members {
  MPI_Comm all = MPI_COMM_NULL;   // Ours alone; errors are return codes.
  MPI_Comm host = MPI_COMM_NULL;  // Those on this host, in the order of their ranks.
  Rank rank = 0;
  int size = 1;
  std::vector<std::string> host_names{};  // By rank.
  std::vector<Rank> host_of{};            // By rank: the lowest rank on its host, which stands for the host.
  std::vector<Rank> here{};               // The ranks on this host, in order.
  std::vector<int> number_here{};         // By rank: its place in `here`, or -1.
  bool core_for_each = false;             // No rank of this host has to share its cores with another.

  bool is_here(Rank other) const { return number_here[static_cast<std::size_t>(other)] >= 0; }
  bool one_host() const { return here.size() == static_cast<std::size_t>(size); }
};

// Called by all processes of the job together.
Members find_members();
void release(Members& members);

}  // namespace starling::fabric::mpi
