// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// How the processes of a job come together: all wait for all, and make what they share.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "starling/fabric/mpi/call.h"
#include "starling/fabric/mpi/speaking.h"
#include "starling/fabric/mpi/start_limit.h"
#include "starling/fabric/mpi/world.h"

namespace starling::fabric::mpi {
namespace {

using namespace std::chrono_literals;

constexpr int kHereTag = 3;  // Beside those of the post.

}  // namespace

// What all processes make together. They are all there, so it takes as long as MPI needs.
void World::make_shared_parts(std::uint64_t number) {
  const StartLimit limit(start_timeout_ + speaking_delay(rank()),
                         [this] { unreachable_("not all ranks have made their parts of the fabric"); });
  host_memory_ = std::make_unique<HostMemory>(members_.host);
  const bool share = can_map_each_other();
  windows_are_shared_ = share && members_.one_host() && !mpi_options_.one_sided_windows;
  if (!windows_are_shared_) {
    call("MPI_Win_create_dynamic", MPI_Win_create_dynamic(MPI_INFO_NULL, members_.all, &one_sided_));
    call("MPI_Win_set_errhandler", MPI_Win_set_errhandler(one_sided_, MPI_ERRORS_RETURN));
    call("MPI_Win_lock_all", MPI_Win_lock_all(MPI_MODE_NOCHECK, one_sided_));
  }
  post_ = std::make_unique<Post>(members_, share, number);
  call("MPI_Barrier", MPI_Barrier(members_.all));
}

// All tell the first that they have come, and it tells them: so it can say who has not, and who has not heard of it can say that. Who
// speaks ends the job, and needs a moment for it; the next waits that much longer.
void World::await_everybody() const {
  constexpr Duration kToSpeak = 2s;
  const auto first = rank() == 0;
  std::vector<MPI_Request> sent(static_cast<std::size_t>(size()), MPI_REQUEST_NULL);
  std::vector<MPI_Request> heard(static_cast<std::size_t>(size()), MPI_REQUEST_NULL);
  for (Rank other = 0; other < size(); ++other) {
    if (other == rank() || (!first && other != 0)) continue;
    const auto index = static_cast<std::size_t>(other);
    call("MPI_Isend", MPI_Isend(nullptr, 0, MPI_BYTE, other, kHereTag, members_.all, &sent[index]));
    call("MPI_Irecv", MPI_Irecv(nullptr, 0, MPI_BYTE, other, kHereTag, members_.all, &heard[index]));
  }
  MPI_Request all = MPI_REQUEST_NULL;
  call("MPI_Ibarrier", MPI_Ibarrier(members_.all, &all));
  const auto is_done = [](std::vector<MPI_Request>& requests) {
    int done = 0;
    call("MPI_Testall", MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
    return done == 1;
  };
  const Clock::time_point begin = Clock::now();
  for (;;) {
    int met = 0;
    call("MPI_Test", MPI_Test(&all, &met, MPI_STATUS_IGNORE));
    const bool all_heard = is_done(heard);
    if (met == 1 && all_heard && is_done(sent)) return;
    const Duration waited = Clock::now() - begin;
    const Duration patience = first ? start_timeout_ : start_timeout_ + (rank() + (all_heard ? 5 : -1)) * kToSpeak;
    if (waited > patience) break;
    if (waited > 1ms) std::this_thread::sleep_for(std::clamp<Duration>(waited / 10, 100us, 10ms));
  }
  std::vector<Rank> late;
  for (Rank other = 0; other < size(); ++other) {
    int done = 0;
    call("MPI_Test", MPI_Test(&heard[static_cast<std::size_t>(other)], &done, MPI_STATUS_IGNORE));
    if (done == 0) late.push_back(other);
  }
  const std::string who = late.empty() ? "not all ranks have" : fmt::format("rank {}{} has not", fmt::join(late, ", "), place_of(late[0]));
  unreachable_(
      fmt::format("{} come to the start within {}: a process hangs, or still reads its files", who, format_duration(start_timeout_)));
  std::abort();  // It does not return.
}

// Whether the processes of this host can open each other's files in memory. All of them give the same answer. Where processes have their
// own numbers, as in containers, the number of one may be that of quite another here: what is in the file shows that it is the right one.
bool World::can_map_each_other() const {
  int can = 1;
  std::optional<MemoryFile> own;
  struct {
    MemoryFile::Place place;
    std::uint64_t token = 0;
  } first;
  try {
    own.emplace(MemoryFile::make(sizeof(first.token)));
    first.place = own->place();
    first.token = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) ^ static_cast<std::uint64_t>(::getpid()) << 40U ^
                  reinterpret_cast<std::uintptr_t>(this);
    std::memcpy(own->bytes().data(), &first.token, sizeof(first.token));
  } catch (const std::exception&) {
    can = 0;
  }
  call("MPI_Bcast", MPI_Bcast(&first, sizeof(first), MPI_BYTE, 0, members_.host));
  try {
    if (can == 1) {
      const MemoryFile theirs = MemoryFile::open(first.place, sizeof(first.token));
      can = std::memcmp(theirs.bytes().data(), &first.token, sizeof(first.token)) == 0 ? 1 : 0;
    }
  } catch (const std::exception&) {
    can = 0;
  }
  int all_can = 0;
  call("MPI_Allreduce", MPI_Allreduce(&can, &all_can, 1, MPI_INT, MPI_MIN, members_.host));
  return all_can == 1;
}

}  // namespace starling::fabric::mpi
