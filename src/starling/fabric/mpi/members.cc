// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/fabric/mpi/members.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "starling/base/notifier.h"
#include "starling/fabric/mpi/call.h"

namespace starling::fabric::mpi {
namespace {

std::vector<std::string> gather_host_names(const Members& members) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME + 1>;
  Name own{};
  int length = 0;
  call("MPI_Get_processor_name", MPI_Get_processor_name(own.data(), &length));
  std::vector<Name> all(static_cast<std::size_t>(members.size));
  call("MPI_Allgather", MPI_Allgather(own.data(), sizeof(Name), MPI_BYTE, all.data(), sizeof(Name), MPI_BYTE, members.all));
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const Name& name : all) names.emplace_back(name.data());
  return names;
}

// Launchers bind ranks to cores, so what counts is how many ranks may use the cores of this one.
bool has_core_for_each(const Members& members) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return false;
  std::vector<cpu_set_t> all(members.here.size());
  call("MPI_Allgather", MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, members.host));
  const auto shares = std::count_if(all.begin(), all.end(), [&](const cpu_set_t& other) {
    cpu_set_t both;
    CPU_AND(&both, &own, &other);
    return CPU_COUNT(&both) > 0;
  });
  int enough = shares <= usable_cores() ? 1 : 0;
  int all_enough = 0;
  call("MPI_Allreduce", MPI_Allreduce(&enough, &all_enough, 1, MPI_INT, MPI_MIN, members.host));
  return all_enough == 1;
}

}  // namespace

Members find_members() {
  Members members;
  call("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &members.all));
  call("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(members.all, MPI_ERRORS_RETURN));
  call("MPI_Comm_rank", MPI_Comm_rank(members.all, &members.rank));
  call("MPI_Comm_size", MPI_Comm_size(members.all, &members.size));
  call("MPI_Comm_split_type", MPI_Comm_split_type(members.all, MPI_COMM_TYPE_SHARED, members.rank, MPI_INFO_NULL, &members.host));
  call("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(members.host, MPI_ERRORS_RETURN));
  members.host_names = gather_host_names(members);
  Rank first = members.rank;
  call("MPI_Bcast", MPI_Bcast(&first, 1, MPI_INT, 0, members.host));
  members.host_of.resize(static_cast<std::size_t>(members.size));
  call("MPI_Allgather", MPI_Allgather(&first, 1, MPI_INT, members.host_of.data(), 1, MPI_INT, members.all));
  members.number_here.assign(static_cast<std::size_t>(members.size), -1);
  for (Rank rank = 0; rank < members.size; ++rank) {
    if (members.host_of[static_cast<std::size_t>(rank)] != first) continue;
    members.number_here[static_cast<std::size_t>(rank)] = static_cast<int>(members.here.size());
    members.here.push_back(rank);
  }
  members.core_for_each = has_core_for_each(members);
  return members;
}

void release(Members& members) {
  MPI_Comm_free(&members.host);
  MPI_Comm_free(&members.all);
}

}  // namespace starling::fabric::mpi
